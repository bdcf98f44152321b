"""What every driver does alike whose sandboxes are processes of this machine: it follows them and removes them."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, NoReturn

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import CapabilityMissing, SandboxStartFailed
from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.drivers.node.driver import TAIL_BYTES, NodeDriver
from sandmeshd.drivers.node.processes import Sandboxed, end, find
from sandmeshd.drivers.node.records import Folder, SpecRecord, begin_removal, observe
from sandmeshd.runtime.beat import beat

ENDING_AT_ONCE = 32
"""The most sandboxes whose processes end at a time with the driver: more would wait for each other in the kernel."""

LOOK_SECONDS = 12.0
"""How often it is looked whether what sandboxes need on the host is there."""

MOST_LEFT = 8
"""How many larger trees may be left; the next delete waits until one is gone, so that a full disk is not hidden."""

log = structlog.get_logger()


class Removals:
    """Removes the folders of sandboxes, those with many files after the deletes are answered.

    The next sandbox of a session waits for the delete of the last one, and 100,000 files take seconds to remove: a disk
    that is mounted with `discard` gets a request for each of them, for which the removal waits.
    """

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(2, "removal")
        self._left: set[asyncio.Future[None]] = set()

    async def remove(self, folder: Folder) -> None:
        """Remove a sandbox's folders: they are no longer where they were, and a small tree is gone."""
        steps = await asyncio.to_thread(begin_removal, folder)
        if steps is None:
            return
        left = asyncio.get_running_loop().run_in_executor(self.threads, _finish_removal, folder.sandbox_id, steps)
        self._left.add(left)
        left.add_done_callback(self._left.discard)
        if len(self._left) >= MOST_LEFT:
            await asyncio.wait(set(self._left), return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Wait until everything is removed."""
        while self._left:
            await asyncio.wait(set(self._left))
        self.threads.shutdown(wait=False)


def _finish_removal(sandbox_id: str, steps: Iterator[None]) -> None:
    try:
        deque(steps, maxlen=0)
    except OSError as error:
        # The next start of the driver tries it again.
        log.warning("files of a deleted sandbox are left", sandbox_id=sandbox_id, error=str(error))


class Tracker(Watched):
    """Follows running sandboxes until they end, and reports it to watchers."""

    def __init__(self) -> None:
        super().__init__()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, Sandboxed] = {}
        self._places: dict[str, _Places] = {}

    def follow(self, folder: Folder, processes: Sandboxed, lifetime: int | None = None) -> None:
        """Follow a sandbox until it ends, then close its processes' pidfds and `lifetime`, a descriptor."""
        task = asyncio.create_task(self._follow(folder, processes, lifetime))
        self._following[folder.sandbox_id] = task
        self._processes[folder.sandbox_id] = processes
        self._places[folder.sandbox_id] = _Places(folder, tuple(folder.group_paths()))

    def kill(self, sandbox_id: str) -> None:
        """End a sandbox's processes, also where its folder, which names them, is gone."""
        processes = self._processes.get(sandbox_id)
        if processes is not None:
            processes.kill()

    def damaged(self) -> list[tuple[Folder, str]]:
        """Return the folders of the sandboxes that run and lack something on the host, each with what that is."""
        looked = [(place.folder, place.missing()) for place in list(self._places.values())]
        return [(folder, missing) for folder, missing in looked if missing]

    async def _follow(self, folder: Folder, processes: Sandboxed, lifetime: int | None) -> None:
        try:
            await processes.ended()
            log.info("a sandbox ended", sandbox_id=folder.sandbox_id, detail=folder.end_detail())
        finally:
            self._processes.pop(folder.sandbox_id, None)
            self._places.pop(folder.sandbox_id, None)
            processes.close()
            if lifetime is not None:
                os.close(lifetime)
            self._following.pop(folder.sandbox_id, None)
        self.changed(folder.sandbox_id)

    async def settled(self, folder: Folder) -> None:
        """Return when a sandbox that was killed is no longer followed."""
        task = self._following.get(folder.sandbox_id)
        if task is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        """Stop following; the sandboxes live on."""
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class _Places:
    """What a sandbox needs on the host while it runs."""

    folder: Folder
    groups: Sequence[str]

    def missing(self) -> str:
        """Return what is no longer there; "" where nothing is missing."""
        # Of a thousand sandboxes this is asked all the time: a Path would take longer than the question.
        workspace = f"{self.folder.root}/workspace"
        if not os.path.exists(workspace):  # noqa: PTH110 - as above
            return f"its workspace was removed on the host ({workspace})"
        gone = [group for group in self.groups if not os.path.exists(group)]  # noqa: PTH110 - as above
        return f"its control group was removed on the host ({gone[0]}), and its limits with it" if gone else ""


class ProcessDriver(NodeDriver):
    """One mesh's sandboxes, whose PID 1 holds the lock of its folder; a runtime's driver starts them."""

    name: ClassVar[str]
    """The driver's name, for messages."""

    def __init__(self, settings: DriverSettings) -> None:
        self._tracker = Tracker()
        super().__init__(settings.paths, self._tracker, settings.snapshot_bytes)
        self._ends_with_driver = settings.ends_with_driver
        self._removals = Removals()

    async def _follow(self, folder: Folder, record: SpecRecord, lifetime: int | None = None) -> pb.RuntimeSandbox:
        """Follow a sandbox whose agent listens, and record that it runs; `lifetime` is closed when it ends.

        Raises:
            SandboxStartFailed: It ended meanwhile.
        """
        processes = find(folder)
        if processes is None:
            if lifetime is not None:
                os.close(lifetime)
            detail = folder.end_detail()
            raise SandboxStartFailed(f"{folder.sandbox_id} ended as soon as it listened", {"detail": detail})
        self._tracker.follow(folder, processes, lifetime)
        return await self._finish_start(folder, record)

    async def _observe(self, folder: Folder) -> pb.RuntimeSandbox | None:
        return observe(folder, self._paths.mesh_id)

    async def _end(self, folder: Folder) -> None:
        await end(folder)

    async def _remove(self, folder: Folder) -> None:
        self._warm_links.drop(folder.sandbox_id)
        self._tracker.kill(folder.sandbox_id)
        if not folder.is_there():
            return
        await end(folder)
        await self._tracker.settled(folder)
        await self._release(folder)
        await self._removals.remove(folder)

    async def _release(self, folder: Folder) -> None:
        """Release what a sandbox without processes has outside of its folder; by default nothing."""

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return the end of what agent and monitor wrote."""
        await self._inspect(request.sandbox_id)
        folder = self._folders.folder(request.sandbox_id)
        data, end_offset = folder.tail(request.tail_bytes or TAIL_BYTES, request.after_offset)
        return pb.GetLogsResponse(data=data, end_offset=end_offset)

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Refuse: nothing here can freeze processes."""
        await self._refuse(request.sandbox_id, "pause")

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Refuse: nothing here can freeze processes."""
        await self._refuse(request.sandbox_id, "pause")

    async def _refuse(self, sandbox_id: str, needs: str) -> NoReturn:
        await self._inspect(sandbox_id)
        raise CapabilityMissing(f"the {self.name} driver has no {needs}: choose another driver", {"needs": needs})

    async def watch_places(self) -> None:
        """End sandboxes whose workspace or control group somebody removed on the host, until cancelled.

        What user code writes would be lost, its calls fail for a reason that it does not see, or its limits hold no
        longer.
        """
        while True:
            await beat(LOOK_SECONDS)
            for folder, detail in await asyncio.to_thread(self._tracker.damaged):
                log.warning(
                    "a sandbox is ended: something of it was removed", sandbox_id=folder.sandbox_id, detail=detail
                )
                with suppress(OSError):
                    folder.damage.write_text(detail)
                self._tracker.kill(folder.sandbox_id)

    async def adopt(self) -> None:
        """Follow the sandboxes that run, and finish interrupted removals."""
        await self._finish_removals()
        for folder in self._folders.all():
            processes = find(folder)
            if processes is not None:
                self._tracker.follow(folder, processes)

    async def close(self) -> None:
        """Release the sandboxes; those that end with the driver are deleted."""
        try:
            if self._ends_with_driver:
                await self._delete_all()
        finally:
            self._warm_links.close()
            await self._tracker.close()
            await self._removals.close()

    async def _delete_all(self) -> None:
        slots = asyncio.Semaphore(ENDING_AT_ONCE)

        async def delete(folder: Folder) -> None:
            async with slots:
                await self._delete(folder)

        await asyncio.gather(*map(delete, self._folders.all()))
