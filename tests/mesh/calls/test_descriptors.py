"""Meshes and their limits of file descriptors."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.errors import RuntimeUnavailable, SandmeshError
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.channels import open_channel
from sandmeshd.mesh import Mesh
from tests.mesh.commands import Commands, own_mesh_id


@pytest.fixture
def sandmesh() -> Generator[Commands]:
    """Return commands of a mesh that is removed afterwards."""
    with own_mesh_id() as commands:
        yield commands


def _run(commands: Commands, limits: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["prlimit", f"--nofile={limits}", "--", sys.executable, "-m", "sandmeshd.cli.user", *arguments]
    return subprocess.run(command, env=commands.variables, capture_output=True, text=True, timeout=60, check=False)


def test_a_mesh_raises_its_soft_limit_of_descriptors_at_start_and_leaves_no_core(sandmesh: Commands) -> None:
    done = _run(sandmesh, "256:2048", "up", "-d", "-o", "json")
    assert done.returncode == 0, done.stderr
    pid = json.loads(done.stdout)["pid"]
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    assert next(line.split()[3:5] for line in lines if line.startswith("Max open files")) == ["2048", "2048"]
    assert next(line.split()[4] for line in lines if line.startswith("Max core file size")) == "0"


def test_the_doctor_names_the_limit_of_descriptors_and_how_many_sandboxes_it_allows(sandmesh: Commands) -> None:
    done = _run(sandmesh, "256:1024", "doctor", "-o", "json")
    [finding] = [load for load in json.loads(done.stdout) if load["name"] == "descriptors"]
    assert finding["health"] == "warning"
    assert finding["seen"] == "up to 1024, enough for about 240 sandboxes (RLIMIT_NOFILE)"
    assert "LimitNOFILE=" in finding["fix"]


@pytest.mark.timeout(300)
async def test_a_mesh_that_ran_out_of_descriptors_deletes_what_is_closed_and_creates_again(
    sandmesh: Commands,
) -> None:
    done = await asyncio.to_thread(_run, sandmesh, "300:300", "up", "-d", "--max-sandboxes", "200", "-o", "json")
    assert done.returncode == 0, done.stderr
    address = json.loads(done.stdout)["base_urls"][0]
    async with asyncio.timeout(240), AsyncExitStack() as stack:
        with pytest.raises(SandmeshError, match="no free file descriptors"):
            await _fill(address, stack)
        await stack.aclose()
        while await asyncio.to_thread(_listed, sandmesh):
            pass
        async with BaseSandboxAsync(base_url=address) as box:
            assert (await box.run_ipython_cell("print(6 * 7)")).stdout == "42\n"


async def _fill(address: str, stack: AsyncExitStack) -> None:
    while True:
        box = await BaseSandboxAsync(base_url=address).start()
        stack.push_async_callback(box.close)
        await box.run_ipython_cell("1")


def _listed(commands: Commands) -> list[str]:
    return [one["sandbox_id"] for one in commands.run("ls", "--all", "-o", "json").json]


@contextmanager
def _exhausted() -> Generator[None]:
    """Leave this process, and the mesh in it, no free descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_mesh_without_free_descriptors_says_so_and_calls_it_no_defect(mesh: Mesh) -> None:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]), open_channel(mesh.addresses[0]) as to:
        stub = session_pb2_grpc.SessionServiceStub(to)
        # Over this connection, which is open by then.
        await stub.ListSessions(session_pb2.ListSessionsRequest(user_id="me"))
        slot = session_pb2.SlotSpec(spec=sandbox_pb2.SandboxSpec(template="base"))
        request = session_pb2.ConnectSessionRequest(session_id="one", user_id="me", slots=[slot])
        with _exhausted(), pytest.raises(RuntimeUnavailable, match="no free file descriptors"), translated():
            await stub.ConnectSession(request)
