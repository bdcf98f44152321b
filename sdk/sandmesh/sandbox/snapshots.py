"""Taking, listing and deleting snapshots: a part of every async box."""

from __future__ import annotations

import base64
import secrets
from abc import abstractmethod
from datetime import UTC

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.inputs import Snapshot
from sandmesh.sandbox.attachment import Attachment, Wanted


class SnapshotsAsync:
    """The methods of a box that are about snapshots."""

    _wanted: Wanted

    @abstractmethod
    def _attached(self) -> Attachment:
        """Give the box's tie to its sandbox."""

    async def snapshot(self) -> Snapshot:
        """Save the sandbox's workspace and home; no process in it runs meanwhile, and memory is not saved.

        The snapshot outlives the sandbox, until it is deleted; `BaseSandbox(snapshot=...)` begins with it. Those of a
        private mesh end with it, and so with this program.

        Raises:
            CapabilityMissing: Its driver takes none.
            TooLarge: It holds more than a snapshot may have.
            WrongState: It is paused.
        """
        attachment = self._attached()
        record = attachment.record
        request = sandbox_pb2.CreateSnapshotRequest(
            sandbox_id=record.sandbox_id,
            fencing_token=record.lease.fencing_token,
            snapshot_id="snap_" + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26],
        )
        asked = attachment.usable().ask(lambda stubs: stubs.sandboxes.CreateSnapshot, request, self._wanted.timeout)
        return read_snapshot((await asked).snapshot)

    async def list_snapshots(self) -> list[Snapshot]:
        """Give this user's snapshots on the box's mesh, also those of other sandboxes; the oldest first."""
        request = sandbox_pb2.ListSnapshotsRequest()
        usable = self._attached().usable()
        answer = await usable.ask(lambda stubs: stubs.sandboxes.ListSnapshots, request, self._wanted.timeout)
        return [read_snapshot(snapshot) for snapshot in answer.snapshots]

    async def delete_snapshot(self, snapshot: Snapshot | str) -> None:
        """Delete a snapshot; sandboxes that began with it go on.

        Raises:
            SnapshotNotFound: There is none, or it is another's.
        """
        name = snapshot.snapshot_id if isinstance(snapshot, Snapshot) else snapshot
        request = sandbox_pb2.DeleteSnapshotRequest(snapshot_id=name)
        usable = self._attached().usable()
        await usable.ask(lambda stubs: stubs.sandboxes.DeleteSnapshot, request, self._wanted.timeout)


def read_snapshot(snapshot: sandbox_pb2.Snapshot) -> Snapshot:
    """Read what the mesh says of a snapshot."""
    return Snapshot(
        snapshot_id=snapshot.snapshot_id,
        sandbox_id=snapshot.sandbox_id,
        sandbox_type=snapshot.template,
        size_bytes=snapshot.size_bytes,
        checksum=snapshot.checksum,
        created=snapshot.create_time.ToDatetime(UTC),
    )
