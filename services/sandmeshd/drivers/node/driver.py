"""What every driver of sandboxes on a machine does alike: their folders, locks, tokens, snapshots and changes."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import ClassVar

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import AlreadyExists, CapabilityMissing, InvalidArgument, SandboxLost, SandboxNotFound
from sandmeshd.agentlink.warm_links import WaitingLink
from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import Folder, MeshFolders, SpecRecord, finish_removals, hand_over, read_record
from sandmeshd.drivers.snapshots import Snapshots
from sandmeshd.drivers.snapshots.snapshots import IMAGE
from sandmeshd.runtime.keyed_locks import KeyedLocks
from sandmeshd.runtime.paths import MeshPaths

TAIL_BYTES = 64 * 1024
"""The bytes of a log that `get_logs` returns by default."""

LITTLE_BYTES = 64 << 20
LITTLE_PART = 0.05
LITTLE_FILES = 100
_FIX = "free space there, or end sandboxes that keep much"


class FixedGrants:
    """A driver whose grants stay as they were made; the egress guard around it changes them."""

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        """Refuse to change a grant.

        Raises:
            CapabilityMissing: Always.
        """
        message = f"the grant of {request.sandbox_id} is fixed: its driver has no egress guard"
        raise CapabilityMissing(message, {"needs": "network"})


class NodeDriver(FixedGrants, ABC):
    """One mesh's sandboxes on a machine; a runtime's driver starts, observes and removes them."""

    saves_roots: ClassVar[bool] = True
    """Whether a snapshot has what was changed of an image that is the root."""

    def __init__(self, paths: MeshPaths, changes: Watched, snapshot_bytes: int) -> None:
        self._paths = paths
        self._changes = changes
        self._folders = MeshFolders(paths)
        self._snapshots = Snapshots(paths, snapshot_bytes)
        self._locks = KeyedLocks()
        self._warm_links = WaitingLink()

    @abstractmethod
    async def _create(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        """Start a sandbox in place of what an interrupted create left, and undo what fails."""

    @abstractmethod
    async def _observe(self, folder: Folder) -> pb.RuntimeSandbox | None:
        """Return a sandbox as it is now, None if nothing of it is left."""

    @abstractmethod
    async def _end(self, folder: Folder) -> None:
        """End the processes of a sandbox."""

    @abstractmethod
    async def _remove(self, folder: Folder) -> None:
        """End a sandbox, if it runs, and remove everything that it left."""

    async def _sandbox_ids(self) -> set[str]:
        return set(self._folders.ids())

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Make a sandbox; return when its agent listens."""
        folder = self._folders.folder(request.sandbox_id)
        if request.mesh_id != self._paths.mesh_id:
            message = f"this driver serves the mesh {self._paths.mesh_id!r}, not {request.mesh_id!r}"
            raise InvalidArgument(message, {"field": "mesh_id"})
        async with self._locks.held(request.sandbox_id):
            sandbox = await self._existing(folder, request) or await self._create(folder, request)
            return pb.CreateSandboxResponse(sandbox=sandbox)

    async def _existing(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox | None:
        record = read_record(folder)
        if record is None:
            return None
        if record.sandbox.spec != request.spec:
            raise AlreadyExists(f"{request.sandbox_id} exists with another spec", {"sandbox_id": request.sandbox_id})
        # A sandbox whose start a killed driver left unfinished is created again.
        unfinished = record.sandbox.state == pb.RUNTIME_STATE_STARTING
        return None if unfinished else await self._observe(folder)

    async def _finish_start(self, folder: Folder, record: SpecRecord) -> pb.RuntimeSandbox:
        """Restore a started sandbox's snapshot, and record that it runs."""
        await self._snapshots.restore(record.sandbox, record.fencing_token)
        record.sandbox.state = pb.RUNTIME_STATE_RUNNING
        record.write(folder)
        self._changes.changed(folder.sandbox_id)
        if not record.fencing_token:
            self._warm_links.keep(record.sandbox)
        return record.sandbox

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Return what the runtime knows of a sandbox."""
        return pb.InspectSandboxResponse(sandbox=await self._inspect(request.sandbox_id))

    async def _inspect(self, sandbox_id: str) -> pb.RuntimeSandbox:
        sandbox = await self._observe(self._folders.folder(sandbox_id))
        if sandbox is None:
            raise SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        return sandbox

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every sandbox of the mesh that has left anything."""
        is_ours = request.mesh_id == self._paths.mesh_id and not request.only_egress
        ids = sorted(await self._sandbox_ids()) if is_ours else []
        observed = [await self._observe(self._folders.folder(sandbox_id)) for sandbox_id in ids]
        return pb.ListSandboxesResponse(sandboxes=[sandbox for sandbox in observed if sandbox is not None])

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """End a sandbox's processes and remove its folders."""
        await self._delete(self._folders.folder(request.sandbox_id))
        return pb.DeleteSandboxResponse()

    async def _delete(self, folder: Folder) -> None:
        # Without its processes a create in progress fails immediately and releases the lock.
        await self._end(folder)
        async with self._locks.held(folder.sandbox_id):
            if folder.is_there():
                await to_the_end(self._remove(folder))
                self._changes.changed(folder.sandbox_id)

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        mesh_id = self._paths.mesh_id
        with self._changes.watching() as changes:
            present = await self.list_sandboxes(pb.ListSandboxesRequest(mesh_id=request.mesh_id))
            for sandbox in present.sandboxes:
                yield pb.WatchSandboxesResponse(sandbox=sandbox)
            yield pb.WatchSandboxesResponse(synced=True)
            async with aclosing(changes.follow()) as ids:
                async for sandbox_id in ids:
                    if request.mesh_id == mesh_id:
                        gone = pb.RuntimeSandbox(sandbox_id=sandbox_id, mesh_id=mesh_id, state=pb.RUNTIME_STATE_ENDED)
                        sandbox = await self._observe(self._folders.folder(sandbox_id)) or gone
                        yield pb.WatchSandboxesResponse(sandbox=sandbox)

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token, and store the labels."""
        folder = self._folders.folder(request.sandbox_id)
        async with self._locks.held(request.sandbox_id):
            try:
                await hand_over(folder, request, self._warm_links)
            except (SandboxLost, SandboxNotFound):
                # The runtime is asked only if the agent does not answer: a claim waits for this.
                check_alive(await self._inspect(request.sandbox_id))
                raise
        return pb.InstallTokenResponse()

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Save workspace and home, which user code leaves as they are meanwhile.

        Raises:
            CapabilityMissing: Its root is an image whose changes this driver cannot save.
        """
        folder = self._folders.folder(request.sandbox_id)
        async with self._locks.held(request.sandbox_id):
            sandbox, record = await self._inspect(request.sandbox_id), read_record(folder)
            if IMAGE in sandbox.enforced and not self.saves_roots:
                fix = "save files with box.fs, or choose the bubblewrap driver"
                message = f"this driver has no snapshots of sandboxes with images: {fix}"
                raise CapabilityMissing(message, {"needs": "snapshot", "fix": fix})
            return await self._snapshots.take(request, sandbox, record.fencing_token if record else 0)

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """List the node's snapshots."""
        return self._snapshots.list(request.mesh_id)

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot's files."""
        return await self._snapshots.delete(request.snapshot_id)

    async def _finish_removals(self) -> None:
        """Remove what a killed driver had begun to remove."""
        await asyncio.to_thread(finish_removals, self._folders)
        await self._snapshots.sweep()


def check_alive(sandbox: pb.RuntimeSandbox) -> None:
    """Check that a sandbox has not ended.

    Raises:
        SandboxLost: It has; `facts["detail"]` says how.
    """
    if sandbox.state == pb.RUNTIME_STATE_ENDED:
        raise SandboxLost(f"{sandbox.sandbox_id} ended", {"detail": sandbox.end_detail})


def lacks_room(paths: MeshPaths) -> list[str]:
    """Return which disks are nearly full: sandboxes may not start, and their writes may fail."""
    found: dict[int | str, str] = {}
    for path in (paths.sandboxes, paths.runtime):
        try:
            seen = os.statvfs(path)
        except OSError as error:
            found[str(path)] = f"{path} cannot be used: {error.strerror}"
            continue
        free, whole = seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize
        if free < min(LITTLE_BYTES, whole * LITTLE_PART):
            found.setdefault(
                seen.f_fsid, f"the disk of {path} is full: {free >> 20} MiB of {whole >> 20} are left; {_FIX}"
            )
        elif seen.f_files and seen.f_favail < LITTLE_FILES:
            found.setdefault(seen.f_fsid, f"the disk of {path} has room for {seen.f_favail} more files; {_FIX}")
    return list(found.values())
