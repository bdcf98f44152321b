"""Ends this user's local mesh, and cleans up after one that was killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandmesh.errors import DeadlineExceeded, SandmeshError
from sandmesh.mesh import MeshAsync
from sandmeshd.cli.config.config_file import find_config
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.mesh.start import KEEP_SIGNAL
from sandmeshd.mesh import MeshSettings, open_mesh
from sandmeshd.mesh.shutdown import LEFT, UNDELETED, sandboxes_left, undeleted_sandboxes
from sandmeshd.runtime.locks import holder
from sandmeshd.runtime.processes.child_process import readable
from sandmeshd.runtime.telemetry.logs import configure_logging

REQUEST_SECONDS = 2.0
LOOK_SECONDS = 0.2

Progress = Callable[[int], None]


@dataclass(frozen=True)
class EndedMesh:
    """The mesh that was ended, its process (None where none ran), and how many sandboxes were deleted and kept."""

    mesh_id: str
    pid: int | None
    removed: int
    kept: int
    failed: int
    """How many could not be deleted, and may go on running without a mesh."""
    reasons: dict[str, str]
    """Why these could not be deleted, by their ids, where the mesh said it."""


async def end_mesh(*, keep: bool, timeout: float, progress: Progress = lambda left: None) -> EndedMesh:
    """End the mesh that the environment or a `.env` here names; return when only what is kept is left of it.

    `progress` receives how many sandboxes are left while they are deleted.

    Raises:
        DeadlineExceeded: For so many seconds no sandbox was deleted, and the mesh had not ended.
    """
    settings = read_settings(find_config(None, os.environ, Path.cwd()))
    configure_logging("WARNING")
    pid = holder(settings.paths.lock)
    if pid is None:
        before = _count_directories(settings)
        if _directories(settings) and not keep:
            await _clean_up(settings)
    else:
        before = max(await _count_sandboxes(settings), _count_directories(settings))
        left_now = partial(sandboxes_left, settings.paths.services / LEFT)
        await _signal_and_wait(pid, KEEP_SIGNAL if keep else signal.SIGTERM, Wait(timeout, left_now, progress))
    left = _count_directories(settings)
    kept, failed = (left, 0) if keep else (0, left)
    reasons = undeleted_sandboxes(settings.paths.state / UNDELETED) if failed else {}
    return EndedMesh(settings.mesh_id, pid, max(0, before - left), kept, failed, reasons)


async def _clean_up(settings: MeshSettings) -> None:
    # A mesh that starts on what is there and ends in an orderly way leaves records and sandboxes in agreement.
    overrides: dict[str, object] = {"keep_sandboxes": False, "pools": {}, "listen": (), "http_listen": ()}
    async with open_mesh(settings.replaced(**overrides), lambda message, fraction: None):
        pass


@dataclass(frozen=True)
class Wait:
    """How long a mesh may take to end: so many seconds, and again whenever it has fewer sandboxes left."""

    seconds: float
    left: Callable[[], int | None]
    progress: Progress

    async def until(self, ended: Awaitable[None]) -> None:
        """Return when a process has ended.

        Raises:
            TimeoutError: It took too long.
        """
        task, loop = asyncio.ensure_future(ended), asyncio.get_running_loop()
        least, deadline = self.left(), loop.time() + self.seconds
        try:
            while not task.done() and loop.time() < deadline:
                await asyncio.wait([task], timeout=min(LOOK_SECONDS, max(0.0, deadline - loop.time())))
                left = self.left()
                if left is not None and (least is None or left < least):
                    least, deadline = left, loop.time() + self.seconds
                    self.progress(left)
            if not task.done():
                raise TimeoutError
        finally:
            task.cancel()


async def _signal_and_wait(pid: int, number: int, wait: Wait) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(pidfd, number)
        await wait.until(readable(pidfd))
    except ProcessLookupError:
        return
    except TimeoutError:
        left = wait.left()
        what = "did not end" if left is None else f"has {left} sandboxes left and deleted none"
        fix = f"wait longer (--timeout), or kill -9 {pid} and run `sandmesh down` again"
        raise DeadlineExceeded(f"the mesh (process {pid}) {what} within {wait.seconds:g} s: {fix}") from None
    finally:
        os.close(pidfd)


async def _count_sandboxes(settings: MeshSettings) -> int:
    with suppress(SandmeshError):
        async with MeshAsync(f"unix://{settings.paths.gateway}", timeout=REQUEST_SECONDS) as mesh:
            return len(await mesh.sandboxes.list())
    return 0


def _count_directories(settings: MeshSettings) -> int:
    # What a driver prepared for creates to come, or was removing, is not a sandbox.
    return sum(1 for name in _directories(settings) if not name.startswith("."))


def _directories(settings: MeshSettings) -> list[str]:
    try:
        return [entry.name for entry in settings.paths.sandboxes.iterdir() if entry.is_dir()]
    except FileNotFoundError:
        return []
