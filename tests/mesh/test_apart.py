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

from sandmesh import BaseSandboxAsync
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


@pytest.fixture
async def apart() -> AsyncGenerator[str]:
    """Run every service in a process of its own; give the gateway's address."""
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
            yield await enter(service(environment, "gateway", *options))
    finally:
        await sweep_state(settings.paths)
        remove(settings.paths)


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
