"""A driver whose sandboxes' volumes are in a storage; the node has a copy of those that are in use."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import CapabilityMissing, NotFound, SandboxNotFound, SandmeshError
from sandmeshd.contracts.driver import Driver
from sandmeshd.contracts.driver_forwarder import ForwardingDriver
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.drivers.api.volumes import volume_paths
from sandmeshd.runtime.keyed_locks import KeyedLocks
from sandmeshd.storage import StoredFolders

log = structlog.get_logger()

SECONDS: Final = 30.0
"""How long a change in a volume that is in use may be only on the node."""

_UNFINISHED: Final = "~"
"""What ends the name of a copy that is not whole: no volume's name has it."""


class VolumeKeeper(ForwardingDriver):
    """A Driver whose volumes are restored before their first sandbox of this node begins, and saved after its last.

    A volume that is in use is saved every SECONDS, if anything changed. What could not be saved stays on the node, is
    what the next sandbox gets, and is saved later.
    """

    def __init__(self, driver: Driver, folders: StoredFolders, root: Path, uid: int) -> None:
        super().__init__(driver)
        self._folders = folders
        self._root = root
        self._uid = uid
        self._locks = KeyedLocks()
        self._users: dict[str, set[str]] = {}
        self._saved: dict[str, int | None] = {}

    async def adopt(self, mesh_id: str) -> None:
        """Find out which volumes sandboxes have that run already."""
        listed = await self._driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=mesh_id))
        for sandbox in listed.sandboxes:
            for volume in volume_paths(sandbox.spec):
                self._users.setdefault(volume, set()).add(sandbox.sandbox_id)
        await asyncio.to_thread(_remove_unfinished, self._root)

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox; its volumes are as they were saved, or as other sandboxes of this node have them.

        Raises:
            CapabilityMissing: This process may not read what user code writes.
            WorkspaceNotReady: What is saved is damaged.
            StorageUnavailable: The storage does not answer.
        """
        volumes = volume_paths(request.spec)
        if volumes and os.geteuid() not in (0, self._uid):
            fix = "run the mesh as root, or set SANDMESH_VOLUMES"
            message = f"volumes of the storage are copied by who may read all of them, which this user may not: {fix}"
            raise CapabilityMissing(message, {"needs": "volumes", "fix": fix})
        try:
            for volume in volumes:
                await self._take(volume, request.sandbox_id)
            return await self._driver.create_sandbox(request)
        except BaseException:
            await asyncio.shield(self._undo(request.sandbox_id, volumes))
            raise

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox, then save the volumes that no other sandbox has."""
        answer = await self._driver.delete_sandbox(request)
        await asyncio.shield(self._release(request.sandbox_id, list(self._users)))
        return answer

    async def save(self) -> None:
        """Save every volume of which the node has a copy, if it changed, and remove unused copies."""
        for volume in await asyncio.to_thread(_copies, self._root):
            await self._save(volume)

    async def follow(self) -> None:
        """Save for ever."""
        while True:
            await self.save()
            await asyncio.sleep(SECONDS)

    async def _take(self, volume: str, sandbox_id: str) -> None:
        async with self._locks.held(volume):
            place = self._root / volume
            if not place.is_dir():
                await self._restore(volume, place)
            self._users.setdefault(volume, set()).add(sandbox_id)

    async def _restore(self, volume: str, place: Path) -> None:
        incoming = place.with_name(place.name + _UNFINISHED)
        await asyncio.to_thread(_make_incoming, self._root, incoming)
        try:
            await self._folders.download_folder(_saved_as(volume), incoming / place.name)
            await asyncio.to_thread(_hand_over, incoming / place.name, self._uid)
            (incoming / place.name).rename(place)
        except NotFound:
            return
        finally:
            await asyncio.to_thread(shutil.rmtree, incoming)
        self._saved[volume] = await asyncio.to_thread(_state, place)
        log.info("a volume was restored", volume=volume)

    async def _undo(self, sandbox_id: str, volumes: Collection[str]) -> None:
        # A create that is refused since there is a sandbox of that id leaves that one its volumes.
        try:
            await self._driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox_id))
        except SandboxNotFound:
            await self._release(sandbox_id, volumes)
        except SandmeshError as error:
            log.warning("volumes stay on the node", sandbox_id=sandbox_id, error=error.message)

    async def _release(self, sandbox_id: str, volumes: Collection[str]) -> None:
        for volume in volumes:
            users = self._users.get(volume, set())
            if sandbox_id in users:
                users.discard(sandbox_id)
                await self._save(volume)

    async def _save(self, volume: str) -> None:
        try:
            async with self._locks.held(volume):
                await self._save_held(volume, self._root / volume)
        except (SandmeshError, OSError) as error:
            # One that is written meanwhile may be cut short while it is read.
            log.warning("a volume is not saved yet", volume=volume, error=str(error))

    async def _save_held(self, volume: str, place: Path) -> None:
        in_use = bool(self._users.get(volume))
        if not in_use:
            self._users.pop(volume, None)
        state = await asyncio.to_thread(_state, place)
        if state is None:
            return
        if state != self._saved.get(volume):
            await self._upload(volume, place)
            self._saved[volume] = state
        if not in_use:
            await asyncio.to_thread(_remove, place)
            del self._saved[volume]

    async def _upload(self, volume: str, place: Path) -> None:
        if not self._users.get(volume) and not await asyncio.to_thread(os.listdir, place):
            await self._folders.delete_folder(_saved_as(volume))
            log.info("an empty volume is nowhere saved", volume=volume)
            return
        saved = await self._folders.upload_folder(place, _saved_as(volume))
        log.info("a volume was saved", volume=volume, bytes=saved.size, uploaded=saved.uploaded)


def _saved_as(volume: str) -> str:
    return f"volumes/{volume}"


def _copies(root: Path) -> list[str]:
    return [
        f"{owner.name}/{place.name}"
        for owner in (root.iterdir() if root.is_dir() else ())
        for place in owner.iterdir()
        if not place.name.endswith(_UNFINISHED)
    ]


def _remove_unfinished(root: Path) -> None:
    for place in root.glob(f"*/*{_UNFINISHED}"):
        shutil.rmtree(place)


def _make_incoming(root: Path, incoming: Path) -> None:
    for path in (root, incoming.parent):
        with suppress(FileExistsError):
            path.mkdir(mode=0o711, parents=True)
            path.chmod(0o711)
    incoming.mkdir(mode=0o700)


def _hand_over(top: Path, uid: int) -> None:
    """Change the owner of what was restored to user code, before any of it can see it."""
    if os.geteuid() == 0:
        for place, directories, files in os.walk(top):
            for path in (place, *(os.path.join(place, name) for name in (*directories, *files))):  # noqa: PTH118 - bytes of any name
                mode = os.lstat(path).st_mode
                os.chown(path, uid, uid, follow_symlinks=False)
                if not stat.S_ISLNK(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                    Path(path).chmod(stat.S_IMODE(mode))
    top.chmod(0o700)


def _remove(place: Path) -> None:
    # What is half removed must not be taken for the volume.
    gone = place.rename(place.with_name(place.name + _UNFINISHED))
    shutil.rmtree(gone)


def _state(top: Path) -> int | None:
    """Return a number that is another one after a change of what is in a directory; None where there is none."""
    if not top.is_dir():
        return None
    seen: list[tuple[object, ...]] = []
    for place, directories, files, fd in os.fwalk(top):
        for name in (".", *directories, *files):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                seen.append((place, name, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns))
    return hash(tuple(seen))


@asynccontextmanager
async def with_volumes(driver: Driver, folders: StoredFolders, settings: DriverSettings) -> AsyncGenerator[Driver]:
    """Yield a driver whose volumes are in a storage, if its settings name no directory that nodes share."""
    root = settings.volumes_root
    if root is None or settings.volumes is not None:
        yield driver
        return
    keeper = VolumeKeeper(driver, folders, root, settings.volumes_uid)
    await keeper.adopt(settings.paths.mesh_id)
    saving = asyncio.create_task(keeper.follow())
    try:
        yield keeper
    finally:
        saving.cancel()
        await asyncio.wait([saving])
        await keeper.save()
