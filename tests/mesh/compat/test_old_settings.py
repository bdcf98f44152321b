"""A mesh started with the old documentation's file: four processes that share a port, Redis, every setting felt."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from redis.asyncio import Redis

from sandmesh import BaseSandboxAsync, SandboxService, errors
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmeshd.cli.config.legacy_names import OLD_DEFAULTS
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from sandmeshd.store.client import prefix_of
from sandmeshd.store.embedded import server_binary
from tests.oss import Oss, oss_server
from tests.ports import free_port
from tests.processes import children_of, command_of, links_of

pytestmark = pytest.mark.needs("user namespaces")

SANDMESH = (sys.executable, "-m", "sandmeshd.cli.user")
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
SANDMESH_DEFAULT_MOUNT_DIR={mount_dir}
SANDMESH_PORT_RANGE=[49152,59152]
SANDMESH_READONLY_MOUNTS={mounts}
SANDMESH_REDIS_ENABLED=True
SANDMESH_REDIS_SERVER=localhost
SANDMESH_REDIS_PORT={redis}
SANDMESH_REDIS_DB=3
SANDMESH_REDIS_USER=default
SANDMESH_REDIS_PASSWORD="{password}"
SANDMESH_REDIS_PORT_KEY=_agent_runtime_container_occupied_ports
SANDMESH_REDIS_CONTAINER_POOL_KEY=_agent_runtime_container_container_pool
SANDMESH_FILE_SYSTEM=oss
SANDMESH_STORAGE_FOLDER=workspaces
SANDMESH_OSS_ENDPOINT={oss}
SANDMESH_OSS_ACCESS_KEY_ID=your-access-key-id
SANDMESH_OSS_ACCESS_KEY_SECRET=your-access-key-secret
SANDMESH_OSS_BUCKET_NAME=your-bucket-name
SANDMESH_MAX_SANDBOX_INSTANCES=9
SANDMESH_HEARTBEAT_TIMEOUT=300
SANDMESH_HEARTBEAT_SCAN_INTERVAL=2
SANDMESH_HEARTBEAT_LOCK_TTL=600
SANDMESH_K8S_NAMESPACE=default
SANDMESH_KUBECONFIG_PATH=
"""


@dataclass(frozen=True)
class Up:
    """A mesh that runs: its process, where it is, what it logs and its settings."""

    process: asyncio.subprocess.Process
    port: int
    http: tuple[str, ...]
    log: Path
    redis: int
    mesh_id: str
    mounts: Path
    oss: Oss

    @property
    def prefix(self) -> str:
        """What the mesh's keys begin with."""
        return prefix_of(self.mesh_id)

    def store(self) -> Redis:
        """Give a client of its store."""
        return Redis(port=self.redis, db=3, password=PASSWORD)

    def events(self) -> list[dict[str, Any]]:
        """Give what it logged so far; the last line may be under way."""
        return [json.loads(line) for line in self.log.read_bytes().split(b"\n")[:-1] if line.startswith(b"{")]

    @property
    def address(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def workers(self) -> set[int]:
        """The processes that are its further gateways."""
        return {pid for pid in children_of(self.process.pid) if "sandmeshd.cli.mesh.worker" in command_of(pid)}


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


def bare_environment() -> dict[str, str]:
    """Return the environment without settings of a mesh."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SANDMESH_")}


@asynccontextmanager
async def started(
    folder: Path, file: str, mesh_id: str, name: str = "mesh.env"
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Path]]:
    """Run `sandmesh up --config` until the block ends; a `.env` is found in the working directory."""
    config, log = folder / name, folder / "log"
    config.write_text(file)
    options = [] if name == ".env" else ["--config", str(config)]
    command = (*SANDMESH, "up", "-o", "json", *options)
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=written, env=bare_environment(), cwd=folder
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
        values = {"port": port, "prefix": f"{mesh_id}-", "mounts": mounts, "mount_dir": f"{shared}/sessions_mount_dir"}
        async with _running(folder, values, mesh_id) as up:
            yield up


@asynccontextmanager
async def _running(folder: Path, values: dict[str, Any], mesh_id: str) -> AsyncGenerator[Up]:
    async with redis_server(folder) as redis, oss_server() as oss:
        file = FILE.format(**values, token=TOKEN, redis=redis, password=PASSWORD, oss=oss.address)
        port: int = values["port"]
        async with started(folder, file, mesh_id) as (process, log):
            assert process.stdout is not None
            async with asyncio.timeout(150):
                line = await process.stdout.readline()
            ready: dict[str, Any] = json.loads(line or b"{}")
            assert ready, log.read_text()[-2000:]
            assert f"127.0.0.1:{port}" in ready["addresses"]
            yield Up(process, port, tuple(ready["http"]), log, redis, mesh_id, Path(values["mount_dir"]), oss)


@asynccontextmanager
async def channels(up: Up, count: int) -> AsyncGenerator[list[grpc.aio.Channel]]:
    """Open connections of their own, which the system spreads over the processes."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    opened = [grpc.aio.insecure_channel(f"127.0.0.1:{up.port}", options=options) for _ in range(count)]
    try:
        yield opened
    finally:
        await asyncio.gather(*(channel.close() for channel in opened))


LISTENS, CONNECTED = "0A", "01"


def holders(up: Up, state: str) -> set[int]:
    """Give the mesh's processes that have a socket of a state at its port."""
    lines = [line for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    rows = [line.split() for line in lines]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == state and row[1].endswith(f":{up.port:04X}")}
    found: set[int] = set()
    for pid in (up.process.pid, *up.workers()):
        if inodes & set(links_of(pid)):
            found.add(pid)
    return found


async def keys(up: Up) -> list[bytes]:
    """Give what the store has of sandboxes."""
    async with up.store() as client:
        found: list[bytes] = await client.execute_command("KEYS", f"{up.prefix}:sandbox:*")  # type: ignore[no-untyped-call]
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
        assert holders(up, LISTENS) == {up.process.pid, *up.workers()}
        with pytest.raises(errors.Unauthenticated):
            await BaseSandboxAsync(base_url=up.address, bearer_token="another").start()  # noqa: S106 - a wrong one
        service = SandboxService(up.address, TOKEN, timeout=30)
        await service.start()
        (box,) = await service.connect_async("session", "user")
        assert await keys(up)
        info = await box.get_info()
        assert info["idle_timeout"] == "300s"
        assert info["driver"] == "bubblewrap"
        assert (up.mounts / up.mesh_id / "local" / box.sandbox_id).is_dir()
        command = "cat /mnt/shared/fact; echo x > /mnt/shared/fact || echo refused; echo kept > mine"
        assert (await box.run_shell_command(command)).stdout == "of the host\nrefused\n"
        await _used_from_every_process(up, box)
        await _counted(up)
        await _swept_every_two_seconds(up)
        await _outlives_a_silence_of_fifteen_minutes(up)
        assert all(49152 <= int(url.rpartition(":")[2]) <= 59152 for url in up.http)
        await service.release_async("session", "user")
        (again,) = await service.connect_async("session", "user")
        assert (await again.run_shell_command("cat mine")).stdout == "kept\n"
        assert {key.split("/")[:2] == ["workspaces", up.mesh_id] for key in up.oss.objects} == {True}
        await _replaced(up)
        await service.stop()
        events = up.events()
        assert {event["level"] for event in events} >= {"debug", "info"}
        ignored = {event["setting"] for event in events if "no effect here" in event["event"]}
        assert ignored == {f"SANDMESH_{name}" for name in OLD_DEFAULTS}
        up.process.send_signal(signal.SIGTERM)
        await up.process.wait()
        assert up.process.returncode == 0
        assert await keys(up) == []


async def _used_from_every_process(up: Up, box: BaseSandboxAsync) -> None:
    """Open connections until each process has one: the system gives them out by chance, none misses 200 in a row."""
    async with channels(up, 200) as opened:
        for number, channel in enumerate(opened):
            assert await run_cell(channel, box, f"n = {number} and n + 1; n") == str(number)
            if holders(up, CONNECTED) == {up.process.pid, *up.workers()}:
                return
    raise AssertionError("a process of the mesh never got a connection")


async def _swept_every_two_seconds(up: Up) -> None:
    """The allocator notes when it swept: between the notes are two seconds, where it would be one by default."""
    async with up.store() as client:
        seen: list[float] = []

        async def noted() -> bool:
            allocators = f"{up.prefix}:allocators"
            found: list[tuple[bytes, float]] = await client.zrange(allocators, 0, -1, withscores=True)  # type: ignore[assignment]
            if found[0][1] not in seen:
                seen.append(found[0][1])
            return len(seen) == 4

        await until(noted)
    gaps = [after - before for before, after in pairwise(seen)]
    # One that comes late on a busy machine is followed by a gap that is shorter.
    assert median(gaps) >= 1_900_000


async def _outlives_a_silence_of_fifteen_minutes(up: Up) -> None:
    """An allocator's starts are abandoned after twice the time of the lock: 20 minutes here, 20 s by default."""
    boxes = [BaseSandboxAsync(base_url=up.address, bearer_token=TOKEN) for _ in range(2)]
    for box in boxes:
        await box.start()
    quiet, dead = [f"{up.prefix}:sandbox:{box.sandbox_id}" for box in boxes]
    now = time.time_ns() // 1000
    async with up.store() as client:
        async with client.pipeline(transaction=True) as step:
            for box, name, owner, minutes in zip(boxes, (quiet, dead), ("quiet", "dead"), (15, 25), strict=True):
                step.zadd(f"{up.prefix}:allocators", {owner: now - minutes * 60_000_000})
                step.hset(name, mapping={"state": "STARTING", "owner": owner})
                step.sadd(f"{up.prefix}:starting", box.sandbox_id)
            await step.execute()

        async def abandoned() -> bool:
            return bool(await client.hget(dead, "state") != b"STARTING")

        await until(abandoned)
        assert await client.hget(quiet, "state") == b"STARTING"
        await client.hset(quiet, "state", "READY")
        await client.srem(f"{up.prefix}:starting", boxes[0].sandbox_id)
        await client.zrem(f"{up.prefix}:allocators", "quiet", "dead")
    for box in boxes:
        await box.close()


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
        return len(workers) == 3 and victim not in workers and holders(up, LISTENS) >= workers

    await until(whole)
    assert set(others) < up.workers()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("HOST=0.0.0.0", "--allow-insecure"),
        ('READONLY_MOUNTS={"/no/such/thing": "/mnt/x"}', "/no/such/thing is not there"),
    ],
)
async def test_what_may_not_be_or_is_not_there_stops_the_start(tmp_path: Path, line: str, said: str) -> None:
    mesh_id = f"test-{secrets.token_hex(5)}"
    file = f"SANDMESH_MESH_ID={mesh_id}\nSANDMESH_PORT=0\nSANDMESH_{line}\n"
    async with started(tmp_path, file, mesh_id) as (process, log):
        async with asyncio.timeout(60):
            await process.wait()
        assert process.returncode != 0
        assert said in log.read_text()
