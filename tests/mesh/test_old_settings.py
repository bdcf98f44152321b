"""A mesh started with the old documentation's file: four processes that share a port, Redis, every setting felt."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from redis.asyncio import Redis

from sandmesh import BaseSandboxAsync, SandboxService, errors
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweeping import remove
from sandmeshd.store.client import prefix_of
from sandmeshd.store.embedded import server_binary

pytestmark = pytest.mark.needs("user namespaces")

TOKEN, PASSWORD = "your-secret-token", "a secret of redis"
FILE = """
SANDMESH_HOST="127.0.0.1"
SANDMESH_PORT={port}
SANDMESH_WORKERS=4
SANDMESH_DEBUG=True
SANDMESH_BEARER_TOKEN={token}
SANDMESH_DEFAULT_SANDBOX_TYPE=base,filesystem
SANDMESH_POOL_SIZE=1
SANDMESH_AUTO_CLEANUP=True
SANDMESH_CONTAINER_PREFIX_KEY={prefix}
SANDMESH_CONTAINER_DEPLOYMENT=bubblewrap
SANDMESH_PORT_RANGE=[49152,59152]
SANDMESH_READONLY_MOUNTS={mounts}
SANDMESH_REDIS_ENABLED=True
SANDMESH_REDIS_SERVER=localhost
SANDMESH_REDIS_PORT={redis}
SANDMESH_REDIS_DB=3
SANDMESH_REDIS_USER=default
SANDMESH_REDIS_PASSWORD="{password}"
SANDMESH_FILE_SYSTEM=local
SANDMESH_STORAGE_FOLDER={storage}
SANDMESH_MAX_SANDBOX_INSTANCES=9
SANDMESH_HEARTBEAT_TIMEOUT=300
SANDMESH_HEARTBEAT_SCAN_INTERVAL=0.5
SANDMESH_HEARTBEAT_LOCK_TTL=20
"""


@dataclass(frozen=True)
class Up:
    """A mesh that runs: its process, where it is, what it logs and what it was told."""

    process: asyncio.subprocess.Process
    port: int
    http: tuple[str, ...]
    log: Path
    redis: int
    mesh_id: str

    @property
    def address(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def workers(self) -> set[int]:
        """The processes that are its further gateways."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {int(pid) for pid in children if b"sandmeshd.cli.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@asynccontextmanager
async def redis_server(folder: Path) -> AsyncGenerator[int]:
    """Run a server that asks for a password, and give its port."""
    port = free_port()
    command = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--requirepass",
        PASSWORD,
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    process = await asyncio.create_subprocess_exec(
        server_binary(), *command, stdout=subprocess.DEVNULL, env={"LC_ALL": "C.UTF-8"}
    )
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def started(folder: Path, file: str, mesh_id: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Path]]:
    """Run `sandmesh up --config` until the block ends."""
    config, log = folder / "mesh.env", folder / "log"
    config.write_text(file)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDMESH_")}
    command = (sys.executable, "-m", "sandmeshd.cli.user", "up", "-o", "json", "--config", str(config))
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=written, env=environment
        )
    try:
        yield process, log
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                await process.wait()
        remove(MeshSettings(mesh_id=mesh_id).paths)


def fill(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "fact").write_text("of the host\n")


@asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[Up]:
    """Run the whole thing."""
    mesh_id, port = f"test-{secrets.token_hex(5)}", free_port()
    with TemporaryDirectory(prefix="sm-", dir="/tmp") as shared:
        # Where a sandbox's uid can reach it, as pytest's own folder cannot be.
        fill(Path(shared))
        mounts = json.dumps({shared: "/mnt/shared"})
        async with _running(folder, {"port": port, "prefix": f"{mesh_id}-", "mounts": mounts}, mesh_id) as up:
            yield up


@asynccontextmanager
async def _running(folder: Path, told: dict[str, Any], mesh_id: str) -> AsyncGenerator[Up]:
    async with redis_server(folder) as redis:
        file = FILE.format(**told, token=TOKEN, redis=redis, password=PASSWORD, storage=folder / "kept")
        port: int = told["port"]
        async with started(folder, file, mesh_id) as (process, log):
            assert process.stdout is not None
            async with asyncio.timeout(150):
                line = await process.stdout.readline()
            ready: dict[str, Any] = json.loads(line or b"{}")
            assert ready, log.read_text()[-2000:]
            assert f"127.0.0.1:{port}" in ready["addresses"]
            yield Up(process, port, tuple(ready["http"]), log, redis, mesh_id)


@asynccontextmanager
async def channels(up: Up, count: int) -> AsyncGenerator[list[grpc.aio.Channel]]:
    """Open connections of their own, which the system spreads over the processes."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    opened = [grpc.aio.insecure_channel(f"127.0.0.1:{up.port}", options=options) for _ in range(count)]
    try:
        yield opened
    finally:
        await asyncio.gather(*(channel.close() for channel in opened))


def listeners(up: Up) -> set[int]:
    """Give the processes that listen at the mesh's port."""
    lines = [line for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    rows = [line.split() for line in lines]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{up.port:04X}")}
    found: set[int] = set()
    for pid in (up.process.pid, *up.workers()):
        links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]  # noqa: PTH115
        if inodes & set(links):
            found.add(pid)
    return found


async def keys(up: Up) -> list[bytes]:
    """Give what the store has of sandboxes."""
    async with Redis(port=up.redis, db=3, password=PASSWORD) as client:
        found: list[bytes] = await client.execute_command("KEYS", f"{prefix_of(up.mesh_id)}:sandbox:*")  # type: ignore[no-untyped-call]
    return found


async def run_cell(channel: grpc.aio.Channel, box: BaseSandboxAsync, code: str) -> str:
    """Run a cell over one connection."""
    arguments = json.dumps({"code": code}).encode()
    start = call_pb2.CallStart(sandbox_id=box.sandbox_id, tool="run_ipython_cell", arguments=arguments)
    call = call_pb2_grpc.CallServiceStub(channel).RunCall(
        call_pb2.RunCallRequest(start=start), metadata=[("authorization", f"Bearer {TOKEN}")]
    )
    texts = [
        json.loads(event.content.json)["text"]
        async for response in call
        for event in response.batch.events
        if event.HasField("content")
    ]
    return "".join(texts).strip()


@pytest.mark.timeout(240)
async def test_the_old_file_starts_four_processes_and_each_setting_is_felt(tmp_path: Path) -> None:
    async with asyncio.timeout(230), running(tmp_path) as up:
        assert len(up.workers()) == 3
        assert listeners(up) == {up.process.pid, *up.workers()}
        with pytest.raises(errors.Unauthenticated):
            await BaseSandboxAsync(base_url=up.address, bearer_token="another").start()  # noqa: S106 - a wrong one
        service = SandboxService(up.address, TOKEN, timeout=30)
        await service.start()
        (box,) = await service.connect_async("session", "user")
        assert await keys(up)
        info = await box.get_info()
        assert info["idle_timeout"] == "300s"
        assert info["driver"] == "bubblewrap"
        command = "cat /mnt/shared/fact; echo x > /mnt/shared/fact || echo refused; echo kept > mine"
        assert (await box.run_shell_command(command)).stdout == "of the host\nrefused\n"
        await _used_from_every_process(up, box)
        await _counted(up)
        assert all(49152 <= int(url.rpartition(":")[2]) <= 59152 for url in up.http)
        await service.release_async("session", "user")
        (again,) = await service.connect_async("session", "user")
        assert (await again.run_shell_command("cat mine")).stdout == "kept\n"
        await _replaced(up)
        await service.stop()
        assert b"debug" in up.log.read_bytes()
        up.process.send_signal(signal.SIGTERM)
        await up.process.wait()
        assert up.process.returncode == 0
        assert await keys(up) == []


async def _used_from_every_process(up: Up, box: BaseSandboxAsync) -> None:
    async with channels(up, 12) as opened:
        assert await run_cell(opened[0], box, "n = 1; n") == "1"
        results = [await run_cell(channel, box, "n += 1; n") for channel in opened[1:]]
        assert results == [str(number) for number in range(2, 13)]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    while True:
        if await holds():
            return
        await asyncio.sleep(0.05)


async def _counted(up: Up) -> None:
    async with channels(up, 1) as (channel,):
        stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
        metadata = [("authorization", f"Bearer {TOKEN}")]

        async def filled() -> bool:
            capacity = await stub.GetCapacity(sandbox_pb2.GetCapacityRequest(), metadata=metadata)
            assert capacity.limit == 9
            return dict(capacity.pooled) == {"base": 1, "filesystem": 1}

        await until(filled)


async def _replaced(up: Up) -> None:
    (victim, *others) = sorted(up.workers())
    os.kill(victim, signal.SIGKILL)

    async def whole() -> bool:
        workers = up.workers()
        return len(workers) == 3 and victim not in workers and listeners(up) >= workers

    await until(whole)
    assert set(others) < up.workers()


async def test_an_open_address_without_tls_is_refused_by_the_old_name_too(tmp_path: Path) -> None:
    mesh_id = f"test-{secrets.token_hex(5)}"
    file = f"SANDMESH_MESH_ID={mesh_id}\nSANDMESH_HOST=0.0.0.0\nSANDMESH_PORT=0\n"
    async with started(tmp_path, file, mesh_id) as (process, log):
        async with asyncio.timeout(60):
            await process.wait()
        assert process.returncode != 0
        assert "--allow-insecure" in log.read_text()
