"""Ends this user's local mesh, whether it runs or was killed."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from sandmesh._client.connection import acquire, release
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import DeadlineExceeded, SandmeshError
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.mesh.host import KEEP
from sandmeshd.cli.sandboxes.fleet import list_all
from sandmeshd.mesh import MeshSettings, open_mesh
from sandmeshd.runtime.locks import holder
from sandmeshd.runtime.logs import configure_logging

ASK_SECONDS = 2.0


@dataclass(frozen=True)
class Ended:
    """What was ended: the mesh, its process or None where none ran, its sandboxes, and those that are kept."""

    mesh_id: str
    pid: int | None
    removed: int
    kept: int


async def end_mesh(*, keep: bool, seconds: float) -> Ended:
    """End the mesh that the environment names, and return when nothing is left that is not to be kept.

    Raises:
        DeadlineExceeded: It did not end in time.
    """
    settings = read_settings()
    configure_logging("WARNING")
    pid = holder(settings.paths.lock)
    if pid is None:
        left = _folders(settings)
        if left and not keep:
            await _sweep(settings)
        return _summary(settings, None, left)
    before = max(await _count(settings), _folders(settings))
    await _end(pid, KEEP if keep else signal.SIGTERM, seconds)
    return _summary(settings, pid, before)


def _summary(settings: MeshSettings, pid: int | None, before: int) -> Ended:
    left = _folders(settings)
    return Ended(settings.mesh_id, pid, max(0, before - left), left)


async def _sweep(settings: MeshSettings) -> None:
    # A mesh that starts on what is there, and ends in an orderly way, leaves records and sandboxes in agreement.
    told: dict[str, object] = {"keep_sandboxes": False, "pools": {}, "listen": (), "http_listen": ()}
    async with open_mesh(settings.replaced(**told), lambda message, fraction: None):
        pass


async def _end(pid: int, number: int, seconds: float) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, number)
        async with asyncio.timeout(seconds):
            await _readable(process)
    except ProcessLookupError:
        return
    except TimeoutError:
        fix = f"wait longer (--timeout), or kill -9 {pid} and run `sandmesh down` again"
        raise DeadlineExceeded(f"the mesh (process {pid}) did not end within {seconds:g} s: {fix}") from None
    finally:
        os.close(process)


async def _readable(descriptor: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)


async def _count(settings: MeshSettings) -> int:
    with suppress(SandmeshError):
        mesh = await acquire(f"unix://{settings.paths.gateway}", None, ASK_SECONDS)
        try:
            return len(await list_all(mesh, pb.ListSandboxesRequest(page_size=1000)))
        finally:
            await release(mesh)
    return 0


def _folders(settings: MeshSettings) -> int:
    try:
        return sum(1 for entry in settings.paths.sandboxes.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return 0
