"""Further gateways of a mesh, each a process that shares its ports; one that ends is started again."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import SecretStr

from sandmesh.errors import MeshUnavailable
from sandmeshd.mesh import MeshSettings

log = structlog.get_logger()

START_SECONDS = 90.0
END_SECONDS = 5.0
_LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class _Process:
    """One worker, and the pipe that it ends with."""

    process: subprocess.Popen[bytes]
    pipe: int


@asynccontextmanager
async def open_workers(
    settings: MeshSettings, addresses: Sequence[str], http: Sequence[str]
) -> AsyncGenerator[list[int]]:
    """Run the gateways beside the mesh's own until the block ends; yields their processes once all serve.

    Raises:
        MeshUnavailable: One did not come up.
    """
    line = _line(settings, addresses, http)
    started = await asyncio.gather(*(_start(line) for _ in range(settings.workers - 1)))
    keeping = [asyncio.create_task(_keep(one, line), name="sandmesh-worker") for one in started]
    try:
        yield [one.process.pid for one in started]
    finally:
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)


def _line(settings: MeshSettings, addresses: Sequence[str], http: Sequence[str]) -> bytes:
    plain = {name: _plain(value) for name, value in settings.model_dump().items()}
    plain["http_listen"] = [url.partition("://")[2] for url in http]
    shared = [address for address in addresses if not address.startswith("unix://")]
    told = {"settings": plain, "listen": shared, "internal": f"unix://{settings.paths.services}/i"}
    return json.dumps(told, default=str).encode() + b"\n"


def _plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


async def _start(line: bytes) -> _Process:
    reading, writing = os.pipe()
    ready, told = os.pipe()
    command = [sys.executable, "-m", "sandmeshd.cli.mesh.worker", "--owner-fd", str(reading), "--ready-fd", str(told)]
    process = _spawned(command, (reading, told))
    os.close(reading)
    os.close(told)
    worker = _Process(process, writing)
    try:
        async with asyncio.timeout(START_SECONDS):
            await asyncio.to_thread(os.write, writing, line)
            up = await _first_byte(ready)
    except TimeoutError:
        up = b""
    except BaseException:
        await asyncio.shield(_end(worker))
        raise
    finally:
        os.close(ready)
    if not up:
        await _end(worker)
        raise MeshUnavailable(
            "a worker did not come up; the log says why", {"detail": f"exit code {process.returncode}"}
        )
    return worker


def _spawned(command: Sequence[str], kept: tuple[int, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=kept)


async def _first_byte(descriptor: int) -> bytes:
    await _readable(descriptor)
    return os.read(descriptor, 1)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


async def _keep(worker: _Process, line: bytes) -> None:
    pause = 0.2
    try:
        while True:
            await _ended(worker.process)
            log.warning("a worker ended and is started again", pid=worker.process.pid, code=worker.process.returncode)
            os.close(worker.pipe)
            worker = await _again(line, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    finally:
        await asyncio.shield(_end(worker))


async def _again(line: bytes, pause: float) -> _Process:
    while True:
        await asyncio.sleep(pause)
        try:
            return await _start(line)
        except MeshUnavailable as error:
            log.warning("a worker did not come up and is tried again", error=error.message)
            pause = min(2 * pause, _LONGEST_PAUSE)


async def _ended(process: subprocess.Popen[bytes]) -> None:
    descriptor = os.pidfd_open(process.pid)
    try:
        await _readable(descriptor)
    finally:
        os.close(descriptor)
    process.wait()


async def _end(worker: _Process) -> None:
    if worker.process.returncode is not None:
        return
    os.close(worker.pipe)
    try:
        async with asyncio.timeout(END_SECONDS):
            await _ended(worker.process)
    except TimeoutError:
        worker.process.kill()
        await _ended(worker.process)
