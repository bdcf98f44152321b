"""Meshes to measure: each in a process of its own, as `sandmesh up` runs it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc

START_SECONDS = 300.0
END_SECONDS = 30.0


@dataclass(frozen=True)
class RunningMesh:
    """A mesh that runs: its socket, its process, its id, whether its sandboxes are containers, and a TCP address."""

    address: str
    pid: int
    mesh_id: str
    in_docker: bool
    tcp: str = ""


@asynccontextmanager
async def running_mesh(
    pools: Mapping[str, int] | None = None,
    log: Path | None = None,
    program: str = "sandmeshd.cli.user",
    environment: Mapping[str, str] | None = None,
    listen: str | None = None,
) -> AsyncGenerator[RunningMesh]:
    """Run a mesh that ends with the block and leaves nothing; with `log` it writes down every step there.

    `program` is the module that runs as `sandmesh`, `environment` what it has beside this process's, `listen` a
    TCP address beside its socket.
    """
    mesh_id = f"bench-{secrets.token_hex(4)}"
    variables = {
        **os.environ,
        **(environment or {}),
        "SANDMESH_MESH_ID": mesh_id,
        "SANDMESH_EPHEMERAL": "true",
        "SANDMESH_LOG_LEVEL": "DEBUG" if log else "WARNING",
    }
    wanted = [argument for name, count in (pools or {}).items() for argument in ("--pool", f"{name}={count}")]
    wanted += ["--listen", listen] if listen else []
    command = (sys.executable, "-m", program, "up", "-o", "json", *wanted)
    with (log or Path(os.devnull)).open("wb") as kept:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=kept if log else None, env=variables
        )
    try:
        in_docker = variables.get("SANDMESH_DRIVER") == "docker"
        address, *others = await _addresses(process)
        yield RunningMesh(address, process.pid, mesh_id, in_docker, others[0] if others else "")
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), END_SECONDS)


async def _addresses(process: asyncio.subprocess.Process) -> list[str]:
    if process.stdout is None:
        raise RuntimeError("the mesh's output is not read")
    line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
    if not line:
        raise RuntimeError("the mesh ended before it listened; see above")
    addresses: list[str] = json.loads(line)["addresses"]
    return addresses


async def pool_is_full(mesh: RunningMesh, template: str, count: int) -> None:
    """Wait until a pool has what it should."""
    async with grpc.aio.insecure_channel(mesh.address.replace("unix://", "unix:")) as channel:
        stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
        while True:
            answer = await stub.GetCapacity(sandbox_pb2.GetCapacityRequest())
            if answer.pooled[template] >= count:
                return
            await asyncio.sleep(0.01)


def processes_below(pid: int) -> set[int]:
    """Return every process that descends from one."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            children.setdefault(_parent(folder), []).append(int(folder.name))
    found: set[int] = set()
    left = [pid]
    while left:
        below = children.get(left.pop(), [])
        found.update(below)
        left += below
    return found


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def proportional_bytes(pids: set[int]) -> int:
    """Return the proportional set size (PSS) of processes together; shared pages count in parts."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024
