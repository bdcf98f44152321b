"""Ends this user's local mesh, and cleans up after one that was killed."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandmesh.errors import DeadlineExceeded, SandmeshError
from sandmesh.mesh import MeshAsync
from sandmeshd.cli.config.config_file import find_config
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.mesh.start import KEEP_SIGNAL
from sandmeshd.mesh import MeshSettings, open_mesh
from sandmeshd.runtime.child_process import readable
from sandmeshd.runtime.locks import holder
from sandmeshd.runtime.logs import configure_logging

REQUEST_SECONDS = 2.0


@dataclass(frozen=True)
class EndedMesh:
    """The mesh that was ended, its process (None where none ran), and how many sandboxes were deleted and kept."""

    mesh_id: str
    pid: int | None
    removed: int
    kept: int


async def end_mesh(*, keep: bool, timeout: float) -> EndedMesh:
    """End the mesh that the environment or a `.env` here names; return when only what is kept is left of it.

    Raises:
        DeadlineExceeded: It did not end in time (seconds).
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
        await _signal_and_wait(pid, KEEP_SIGNAL if keep else signal.SIGTERM, timeout)
    left = _count_directories(settings)
    return EndedMesh(settings.mesh_id, pid, max(0, before - left), left)


async def _clean_up(settings: MeshSettings) -> None:
    # A mesh that starts on what is there and ends in an orderly way leaves records and sandboxes in agreement.
    overrides: dict[str, object] = {"keep_sandboxes": False, "pools": {}, "listen": (), "http_listen": ()}
    async with open_mesh(settings.replaced(**overrides), lambda message, fraction: None):
        pass


async def _signal_and_wait(pid: int, number: int, timeout: float) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(pidfd, number)
        async with asyncio.timeout(timeout):
            await readable(pidfd)
    except ProcessLookupError:
        return
    except TimeoutError:
        fix = f"wait longer (--timeout), or kill -9 {pid} and run `sandmesh down` again"
        raise DeadlineExceeded(f"the mesh (process {pid}) did not end within {timeout:g} s: {fix}") from None
    finally:
        os.close(pidfd)


async def _count_sandboxes(settings: MeshSettings) -> int:
    with suppress(SandmeshError):
        async with MeshAsync(f"unix://{settings.paths.gateway}", timeout=REQUEST_SECONDS) as mesh:
            return len(await mesh.sandboxes.list())
    return 0


def _count_directories(settings: MeshSettings) -> int:
    # What a driver prepared for creates to come, or was removing, is no sandbox.
    return sum(1 for name in _directories(settings) if not name.startswith("."))


def _directories(settings: MeshSettings) -> list[str]:
    try:
        return [entry.name for entry in settings.paths.sandboxes.iterdir() if entry.is_dir()]
    except FileNotFoundError:
        return []
