"""Takes snapshots of a node's sandboxes, and lets others begin with them."""

from __future__ import annotations

import asyncio
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import AlreadyExists, InvalidArgument, SandboxLost, WrongState
from sandmeshd.agentlink.archives import restored, saved
from sandmeshd.drivers.snapshots.archive import archive_of, not_found, seconds_left
from sandmeshd.drivers.snapshots.held_kernels import HeldKernels
from sandmeshd.runtime.paths import MeshPaths

IMAGE: Final = "image"
"""Where a sandbox's `enforced` has the image that is its root, and its digest."""


class Snapshots:
    """The snapshots of one driver; opening it removes what a killed driver left half made."""

    def __init__(self, paths: MeshPaths, limit_bytes: int) -> None:
        self._mesh_id = paths.mesh_id
        self._kept = archive_of(paths.node_state, limit_bytes)
        self._kernels = HeldKernels()
        self._ends = set[asyncio.Task[None]]()

    async def sweep(self) -> None:
        """Remove what a killed driver left half made, and what is over; the others end at their time."""
        await asyncio.to_thread(self._kept.sweep)
        for snapshot in await asyncio.to_thread(self._kept.all):
            self._end_in_time(snapshot)

    def _end_in_time(self, snapshot: pb.RuntimeSnapshot) -> None:
        def end() -> None:
            task = asyncio.create_task(self._end(snapshot))
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

        if snapshot.HasField("expire_time"):
            asyncio.get_running_loop().call_later(seconds_left(snapshot), end)

    async def _end(self, snapshot: pb.RuntimeSnapshot) -> None:
        if seconds_left(snapshot) > 0:  # the clock was set back
            self._end_in_time(snapshot)
        elif self._kept.find(snapshot.snapshot_id) is None:
            await self.delete(snapshot.snapshot_id)

    async def take(
        self, request: pb.SnapshotSandboxRequest, sandbox: pb.RuntimeSandbox, fencing_token: int
    ) -> pb.SnapshotSandboxResponse:
        """Save a running sandbox's workspace and home; nothing else may be done with the sandbox meanwhile.

        Raises:
            SandboxLost: It ended.
            WrongState: It is paused.
            AlreadyExists: The id is that of another sandbox's snapshot.
            TooLarge, RuntimeUnavailable: As Kept.save.
        """
        there = self._kept.find(request.snapshot_id)
        response = pb.SnapshotSandboxResponse()
        if there is None:
            _check_runs(sandbox)
            begun = self._begun(request, sandbox)
            if request.kernels:
                kernels, not_copied = await self._kernels.save(request, sandbox, fencing_token)
                begun.kernels.extend(kernels)
                response.not_copied.extend(not_copied)
            try:
                there = await self._kept.save(begun, saved(sandbox, fencing_token), request.ttl.ToTimedelta())
            except BaseException:
                self._kernels.drop(request.snapshot_id)
                raise
            self._end_in_time(there)
        elif there.sandbox_id != request.sandbox_id:
            facts = {"snapshot_id": request.snapshot_id}
            raise AlreadyExists(f"{request.snapshot_id} is another sandbox's snapshot", facts)
        response.snapshot.CopyFrom(there)
        return response

    def _begun(self, request: pb.SnapshotSandboxRequest, sandbox: pb.RuntimeSandbox) -> pb.RuntimeSnapshot:
        now = Timestamp()
        now.GetCurrentTime()
        return pb.RuntimeSnapshot(
            snapshot_id=request.snapshot_id,
            mesh_id=self._mesh_id,
            sandbox_id=sandbox.sandbox_id,
            template=sandbox.spec.template,
            create_time=now,
            record_labels=request.record_labels,
            image=sandbox.enforced.get(IMAGE, ""),
        )

    def image_of(self, spec: sandbox_pb2.SandboxSpec) -> tuple[str, str]:
        """Return the image that a sandbox has by its snapshot, and its digest; empty texts where it has none.

        Raises:
            SnapshotNotFound, SnapshotDamaged, InvalidArgument: As `check`.
        """
        reference, _, digest = (self._found(spec).image if spec.snapshot_id else "").rpartition(" (")
        return reference, digest.removesuffix(")")

    def check(self, spec: sandbox_pb2.SandboxSpec, image: str = "") -> None:
        """Check, before anything is made, that a sandbox can begin with the snapshot that its spec names, if any.

        `image` is what the sandbox's root is to be, with its digest, as in `enforced`; empty: no image.

        Raises:
            SnapshotNotFound: There is none.
            SnapshotDamaged: It cannot be trusted.
            InvalidArgument: It is another template's or image's.
        """
        if spec.snapshot_id and (found := self._found(spec)).image != image:
            what = f"is one of the image {found.image}" if found.image else "is not one of an image"
            message = f"snapshot {spec.snapshot_id} {what}: it does not fit {image or 'a sandbox without an image'}"
            raise InvalidArgument(message, {"field": "spec.snapshot_id", "image": found.image})

    def _found(self, spec: sandbox_pb2.SandboxSpec) -> pb.RuntimeSnapshot:
        found = self._kept.find(spec.snapshot_id)
        if found is None:
            raise not_found(spec.snapshot_id)
        if found.template != spec.template:
            message = f"snapshot {spec.snapshot_id} is one of {found.template}: it fits no sandbox of {spec.template}"
            raise InvalidArgument(message, {"field": "spec.snapshot_id", "template": found.template})
        return found

    async def restore(self, sandbox: pb.RuntimeSandbox, fencing_token: int) -> None:
        """Restore the snapshot that a sandbox's spec names, if any, once its agent listens.

        Raises:
            SnapshotNotFound, SnapshotDamaged: It was removed or damaged meanwhile.
            SandboxStartFailed: It does not fit in.
            SandboxLost: The agent does not answer.
        """
        if sandbox.spec.snapshot_id:
            found = self._found(sandbox.spec)
            await restored(sandbox, fencing_token, self._kept.stream(found))
            if found.kernels:
                await self._kernels.restore(found.snapshot_id, sandbox, fencing_token)

    def list(self, mesh_id: str) -> pb.ListSnapshotsResponse:
        """Return the snapshots of a mesh."""
        return pb.ListSnapshotsResponse(snapshots=self._kept.all() if mesh_id == self._mesh_id else [])

    async def delete(self, snapshot_id: str) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot; one that is not there is fine."""
        self._kernels.drop(snapshot_id)
        await self._kept.remove(snapshot_id)
        return pb.DeleteSnapshotResponse()


def _check_runs(sandbox: pb.RuntimeSandbox) -> None:
    if sandbox.state == pb.RUNTIME_STATE_ENDED:
        raise SandboxLost(f"{sandbox.sandbox_id} ended", {"detail": sandbox.end_detail})
    if sandbox.state != pb.RUNTIME_STATE_RUNNING:
        message = f"{sandbox.sandbox_id} is paused: resume it, and take the snapshot then"
        raise WrongState(message, {"state": "PAUSED"})
