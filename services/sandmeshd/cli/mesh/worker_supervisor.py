"""The further gateways of a mesh, each a process that shares its ports; one that ends is restarted."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog
from pydantic import SecretStr

from sandmesh.errors import MeshUnavailable
from sandmesh.shared.child_process import ChildProcess, spawn_child
from sandmeshd.mesh import MeshSettings
from sandmeshd.runtime.processes.child_process import end, readable, wait

log = structlog.get_logger()

START_SECONDS = 90.0
END_SECONDS = 5.0
_MIN_BACKOFF = 0.2
_MAX_BACKOFF = 10.0


@asynccontextmanager
async def open_workers(
    settings: MeshSettings, addresses: Sequence[str], http: Sequence[str]
) -> AsyncGenerator[list[int]]:
    """Run the gateways beside the mesh's own until the block ends; yields their process ids once all serve.

    Raises:
        MeshUnavailable: One did not start.
    """
    config = _write_config(settings, addresses, http)
    workers = await asyncio.gather(*(_start(config) for _ in range(settings.workers - 1)))
    tasks = [asyncio.create_task(_supervise(worker, config), name="sandmesh-worker") for worker in workers]
    try:
        yield [worker.process.pid for worker in workers]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _write_config(settings: MeshSettings, addresses: Sequence[str], http: Sequence[str]) -> bytes:
    plain = {name: _reveal(value) for name, value in settings.values().items()}
    plain["http_listen"] = [url.partition("://")[2] for url in http]
    shared = [address for address in addresses if not address.startswith("unix://")]
    config = {"settings": plain, "listen": shared, "internal": f"unix://{settings.paths.services}/i"}
    return json.dumps(config, default=str).encode() + b"\n"


def _reveal(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


async def _start(config: bytes) -> ChildProcess:
    worker = spawn_child([sys.executable, "-m", "sandmeshd.cli.mesh.worker"])
    try:
        async with asyncio.timeout(START_SECONDS):
            await asyncio.to_thread(os.write, worker.owner, config)
            await readable(worker.status)
            ready = os.read(worker.status, 4096)
    except TimeoutError:
        ready = b""
    except BaseException:
        await asyncio.shield(end(worker, END_SECONDS))
        raise
    if not ready:
        await end(worker, END_SECONDS)
        raise MeshUnavailable(
            "a worker did not start; the log says why", {"detail": f"exit code {worker.process.returncode}"}
        )
    worker.close_status()
    return worker


async def _supervise(worker: ChildProcess, config: bytes) -> None:
    backoff = _MIN_BACKOFF
    try:
        while True:
            code = await wait(worker.process)
            log.warning("a worker ended and is restarted", pid=worker.process.pid, code=code)
            worker.release()
            worker = await _restart(config, backoff)
            backoff = min(2 * backoff, _MAX_BACKOFF)
    finally:
        await asyncio.shield(end(worker, END_SECONDS))


async def _restart(config: bytes, backoff: float) -> ChildProcess:
    while True:
        await asyncio.sleep(backoff)
        try:
            return await _start(config)
        except MeshUnavailable as error:
            log.warning("a worker did not start and is retried", error=error.message)
            backoff = min(2 * backoff, _MAX_BACKOFF)
