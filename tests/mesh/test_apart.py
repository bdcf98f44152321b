"""The same services in processes of their own, and clients that are not our SDK."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync, SandboxService
from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweeping import remove


@asynccontextmanager
async def service(environment: dict[str, str], *arguments: str) -> AsyncGenerator[str]:
    """Run `sandmeshd ...` and give its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandmeshd.cli.service", *arguments, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        yield line.decode().split()[-1]
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 20)


@asynccontextmanager
async def services(gateways: int) -> AsyncGenerator[list[str]]:
    """Run every service in a process of its own; give the gateways' addresses."""
    settings = MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    environment = {**os.environ, "SANDMESH_MESH_ID": settings.mesh_id}
    settings.paths.make()
    sockets = settings.paths.services
    try:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            driver = await enter(service(environment, "driver", "bubblewrap", "--listen", f"unix://{sockets}/d"))
            named = f"bubblewrap={driver}"
            allocator = await enter(service(environment, "allocator", "--listen", "127.0.0.1:0", "--driver", named))
            broker = await enter(service(environment, "broker", "--listen", "127.0.0.1:0", "--allocator", allocator))
            options = ("--listen", "127.0.0.1:0", "--allocator", allocator, "--broker", broker)
            yield [await enter(service(environment, "gateway", *options)) for _ in range(gateways)]
    finally:
        await sweep_state(settings.paths)
        remove(settings.paths)


@pytest.fixture
async def apart() -> AsyncGenerator[str]:
    """Run the services; give the gateway's address."""
    async with services(1) as (gateway,):
        yield gateway


async def test_services_apart_serve_a_sandbox(apart: str) -> None:
    async with BaseSandboxAsync(base_url=f"grpc://{apart}") as box:
        assert (await box.run_ipython_cell("1+1")).text.strip() == "2"
        assert (await box.run_shell_command("echo $((6*7))")).stdout == "42\n"


async def grpcurl(*arguments: str) -> str:
    path = shutil.which("grpcurl", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert path is not None, "grpcurl comes with the development requirements"
    process = await asyncio.create_subprocess_exec(
        path, "-plaintext", *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_grpcurl_lists_services_and_runs_a_tool(apart: str) -> None:
    listed = await grpcurl(apart, "list")
    assert "sandmesh.api.call.v1.CallService" in listed
    request = json.dumps({"slots": [{"spec": {"template": "base"}}]})
    connected = json.loads(await grpcurl("-d", request, apart, "sandmesh.api.session.v1.SessionService/ConnectSession"))
    sandbox_id = connected["session"]["sandboxes"]["base"]["sandbox_id"]
    arguments = "eyJjb21tYW5kIjogImVjaG8gaGkifQ=="  # {"command": "echo hi"}
    start = {"start": {"sandboxId": sandbox_id, "tool": "run_shell_command", "arguments": arguments}}
    ran = await grpcurl("-d", json.dumps(start), apart, "sandmesh.api.call.v1.CallService/RunCall")
    assert '"data": "aGkK"' in ran
    assert '"exit_code": 0' in ran


ANOTHER = """
import sys
from sandmesh import SandboxService

with SandboxService(sys.argv[1]) as service:
    (box,) = service.connect("session", "user")
    print(box.sandbox_id, box.run_ipython_cell("n += 1; print(n)").text.strip(), flush=True)
    (stranger,) = service.connect("session", "another user")
    print(stranger.run_ipython_cell("'n' in globals()").text.strip())
    service.release("session", "another user")
"""


async def run_another(gateway: str) -> list[str]:
    """Run a program that uses the session, too, in a process of its own."""
    command = (sys.executable, "-c", ANOTHER, f"grpc://{gateway}")
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return out.decode().split()


@pytest.mark.timeout(180)
async def test_one_session_is_used_from_two_processes_through_two_gateways() -> None:
    async with asyncio.timeout(170), services(2) as (one, two), SandboxService(f"grpc://{one}") as here:
        (box,) = await here.connect_async("session", "user")
        assert (await box.run_ipython_cell("n = 1; n")).text.strip() == "1"
        assert await run_another(two) == [box.sandbox_id, "2", "False"]
        assert (await box.run_ipython_cell("n")).text.strip() == "2"
        async with SandboxService(f"grpc://{two}") as there:
            (same,) = await there.connect_async("session", "user")
            assert (await same.run_ipython_cell("n += 1; n")).text.strip() == "3"
            assert await there.release_async("session", "user")
        assert await here.list_sessions_async("user") == []
