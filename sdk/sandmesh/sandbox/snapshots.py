"""Creation, listing and deletion of snapshots: a part of every async box."""

from __future__ import annotations

import base64
import secrets
from datetime import UTC

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.inputs import Snapshot
from sandmesh.sandbox.handle import SandboxHandle


class SnapshotsAsync(SandboxHandle):
    """The methods of a box that are about snapshots."""

    async def snapshot(self) -> Snapshot:
        """Save the sandbox's workspace and home; its processes are paused meanwhile, and memory is not saved.

        The snapshot outlives the sandbox until it is deleted; `BaseSandbox(snapshot=...)` starts from it. Snapshots of
        a private mesh end with that mesh, and so with this program.

        Raises:
            CapabilityMissing: Its driver does not support snapshots.
            TooLarge: The sandbox holds more than a snapshot may have.
            WrongState: The sandbox is paused.
        """
        return read_snapshot((await self.take_snapshot()).snapshot)

    async def take_snapshot(
        self, *, kernels: bool = False, kernels_timeout: float = 60
    ) -> sandbox_pb2.CreateSnapshotResponse:
        """Take a snapshot, with `kernels` also of the memory of Python kernels, and return the mesh's own answer.

        Sandboxes that start from it within 5 minutes continue those kernels. Programs use `snapshot` and `fork`.
        """
        attachment = self._attached()
        record = attachment.record
        request = sandbox_pb2.CreateSnapshotRequest(
            sandbox_id=record.sandbox_id,
            fencing_token=record.lease.fencing_token,
            snapshot_id="snap_" + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26],
            kernels=kernels,
        )
        if kernels:
            request.kernels_timeout.FromMilliseconds(round(kernels_timeout * 1e3))
        connection, timeout = attachment.usable(), self._config.timeout
        return await connection.ask(lambda stubs: stubs.sandboxes.CreateSnapshot, request, timeout)

    async def list_snapshots(self) -> list[Snapshot]:
        """List this user's snapshots on the box's mesh, those of other sandboxes included, oldest first."""
        request = sandbox_pb2.ListSnapshotsRequest()
        usable = self._attached().usable()
        response = await usable.ask(lambda stubs: stubs.sandboxes.ListSnapshots, request, self._config.timeout)
        return [read_snapshot(snapshot) for snapshot in response.snapshots]

    async def delete_snapshot(self, snapshot: Snapshot | str) -> None:
        """Delete a snapshot; sandboxes that started from it go on.

        Raises:
            SnapshotNotFound: It does not exist, or belongs to another user.
        """
        name = snapshot.snapshot_id if isinstance(snapshot, Snapshot) else snapshot
        request = sandbox_pb2.DeleteSnapshotRequest(snapshot_id=name)
        usable = self._attached().usable()
        await usable.ask(lambda stubs: stubs.sandboxes.DeleteSnapshot, request, self._config.timeout)


def read_snapshot(snapshot: sandbox_pb2.Snapshot) -> Snapshot:
    """Convert a snapshot message."""
    return Snapshot(
        snapshot_id=snapshot.snapshot_id,
        sandbox_id=snapshot.sandbox_id,
        sandbox_type=snapshot.template,
        size_bytes=snapshot.size_bytes,
        checksum=snapshot.checksum,
        created=snapshot.create_time.ToDatetime(UTC),
    )
