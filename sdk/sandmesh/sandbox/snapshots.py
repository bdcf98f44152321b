"""Snapshots and marks: a part of every async box."""

from __future__ import annotations

import base64
import secrets
from datetime import UTC
from typing import TYPE_CHECKING

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandmeshError
from sandmesh.inputs import Snapshot
from sandmesh.sandbox.handle import Attachment, SandboxHandle
from sandmesh.shared.fork_lock import fork_lock

if TYPE_CHECKING:
    from sandmesh.sandbox.session.marks import SandboxMark


class SnapshotsAsync(SandboxHandle):
    """The methods of a box that are about its states."""

    async def snapshot(self, *, ttl: float | None = None) -> Snapshot:
        """Save the sandbox's workspace and home; its processes are paused meanwhile, and memory is not saved.

        The snapshot outlives the sandbox until it is deleted, or for `ttl` seconds, at most 7 days;
        `BaseSandbox(snapshot=...)` starts from it. Snapshots of a private mesh end with that mesh, and so with this
        program.

        Raises:
            CapabilityMissing: Its driver does not support snapshots.
            TooLarge: The sandbox holds more than a snapshot may have.
            WrongState: The sandbox is paused.
        """
        return read_snapshot((await take_snapshot(self._attached(), self._config.timeout, ttl=ttl)).snapshot)

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

    async def mark(self, timeout: float | None = None, *, kernels: bool | None = None) -> SandboxMark:
        """Hold the workspace and the Python kernels as they are, for `rewind`.

        It waits until their cells have ended, at most `timeout` seconds. With `kernels` all of them must be held; None:
        those that can be, False: only files. `not_copied` of the mark names the rest. It holds a copy of the files.

        Raises:
            WrongState: A kernel that is to be held has threads, or runs a cell for all of the time.
            OSError: There are too many marks, or no space is left.
        """
        with fork_lock:
            from sandmesh.sandbox.session.marks import HeldMarks  # noqa: PLC0415 - most programs make none

        return await HeldMarks(self._attached, self._config.timeout).hold(timeout, kernels=kernels)

    async def rewind(self, mark: SandboxMark | str) -> None:
        """Return the sandbox to a mark, any number of times: kernels first, then the files of the workspace.

        A running cell ends. Other processes, the home, and kernels that were created since stay as they are.

        Raises:
            WrongState: The mark, or one of its kernels, is gone.
            OSError: The files cannot be restored; they are unchanged.
        """
        with fork_lock:
            from sandmesh.sandbox.session.marks import HeldMarks  # noqa: PLC0415 - most programs make none

        await HeldMarks(self._attached, self._config.timeout).return_to(mark)

    async def drop(self, mark: SandboxMark | str) -> None:
        """Drop a mark and free what it holds.

        Raises:
            WrongState: It does not exist.
        """
        with fork_lock:
            from sandmesh.sandbox.session.marks import HeldMarks  # noqa: PLC0415 - most programs make none

        await HeldMarks(self._attached, self._config.timeout).drop(mark)


async def take_snapshot(
    attachment: Attachment, timeout: float, *, kernels_timeout: float = 0, ttl: float | None = None
) -> sandbox_pb2.CreateSnapshotResponse:
    """Take a snapshot and return the mesh's answer.

    Unless `kernels_timeout` is 0, the memory of Python kernels is held too, once their cells have ended: sandboxes that
    start from the snapshot within 5 minutes continue them. With `ttl` it deletes itself after so many seconds.
    """
    record = attachment.record
    request = sandbox_pb2.CreateSnapshotRequest(
        sandbox_id=record.sandbox_id,
        fencing_token=record.lease.fencing_token,
        snapshot_id="snap_" + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26],
    )
    if kernels_timeout:
        request.kernels = True
        request.kernels_timeout.FromMilliseconds(round(kernels_timeout * 1e3))
    if ttl is not None:
        request.ttl.FromMilliseconds(round(ttl * 1e3))
    return await attachment.usable().ask(lambda stubs: stubs.sandboxes.CreateSnapshot, request, timeout)


def refuses_kernels(error: SandmeshError) -> bool:
    """Return whether an error of a snapshot means that it can be taken without kernels."""
    return error.facts.get("needs") == "fork_kernels" or error.facts.get("state") == "KERNELS"


def read_snapshot(snapshot: sandbox_pb2.Snapshot) -> Snapshot:
    """Convert a snapshot message."""
    return Snapshot(
        snapshot_id=snapshot.snapshot_id,
        sandbox_id=snapshot.sandbox_id,
        sandbox_type=snapshot.template,
        size_bytes=snapshot.size_bytes,
        checksum=snapshot.checksum,
        created=snapshot.create_time.ToDatetime(UTC),
        expires=snapshot.expire_time.ToDatetime(UTC) if snapshot.HasField("expire_time") else None,
    )
