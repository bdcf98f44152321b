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
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from sandmesh import BaseSandboxAsync, MeshAsync, SandboxService
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.errors import QuotaExceeded
from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.unit.store.waiting import until


@asynccontextmanager
async def service(environment: dict[str, str], *arguments: str, logs: Path | None = None) -> AsyncGenerator[str]:
    """Run `sandmeshd ...` and give its address; its log is a file in `logs`, where that is given."""
    command = (sys.executable, "-m", "sandmeshd.cli.service", *arguments)
    with ExitStack() as stack:
        log = stack.enter_context((logs / arguments[0]).open("ab")) if logs else None
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=log, env=environment)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        yield line.decode().split()[-1]
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 20)


@asynccontextmanager
async def services(gateways: int, logs: Path | None = None, **variables: str) -> AsyncGenerator[list[str]]:
    """Run every service in a process of its own; give the gateways' addresses. Where `logs` is given, they log all."""
    settings = MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    environment = {**os.environ, **variables, "SANDMESH_MESH_ID": settings.mesh_id}
    if logs is not None:
        environment["SANDMESH_LOG_LEVEL"] = "DEBUG"
    settings.paths.make()
    sockets = settings.paths.services
    try:
        async with AsyncExitStack() as stack:

            async def serve(*arguments: str) -> str:
                return await stack.enter_async_context(service(environment, *arguments, logs=logs))

            driver = await serve("driver", "bubblewrap", "--listen", f"unix://{sockets}/d")
            allocator = await serve("allocator", "--listen", "127.0.0.1:0", "--driver", f"bubblewrap={driver}")
            broker = await serve("broker", "--listen", "127.0.0.1:0", "--allocator", allocator)
            options = ("--listen", "127.0.0.1:0", "--allocator", allocator, "--broker", broker)
            yield [await serve("gateway", *options) for _ in range(gateways)]
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


def _logs(folder: Path) -> dict[str, list[dict[str, str]]]:
    return {log.name: [json.loads(line) for line in log.read_text().splitlines()] for log in folder.iterdir()}


async def test_one_request_has_one_id_in_the_logs_of_all_services_and_a_call_its_own(tmp_path: Path) -> None:
    request = session_pb2.ConnectSessionRequest(user_id="ada", session_id="s-1")
    request.slots.add().spec.template = "base"
    async with services(1, tmp_path) as (gateway,), grpc.aio.insecure_channel(gateway) as channel:
        sessions = session_pb2_grpc.SessionServiceStub(channel)
        connected = await sessions.ConnectSession(request, metadata=(("x-request-id", "r-1"),))
        sandbox_id = connected.session.sandboxes["base"].sandbox_id
        start = call_pb2.CallStart(sandbox_id=sandbox_id, call_id="c-1", tool="run_ipython_cell")
        start.arguments = b'{"code": "1"}'
        run = call_pb2_grpc.CallServiceStub(channel).RunCall(
            call_pb2.RunCallRequest(start=start), metadata=(("x-request-id", "r-2"),)
        )
        assert [batch async for batch in run]
    seen = await asyncio.to_thread(_logs, tmp_path)
    of_request = {name: [line for line in lines if line.get("request_id") == "r-1"] for name, lines in seen.items()}
    assert [name for name, lines in of_request.items() if not lines] == []
    for name in ("broker", "allocator"):
        assert "s-1" in {line.get("session_id") for line in of_request[name]}
    assert sandbox_id in {line.get("sandbox_id") for line in of_request["driver"]}
    calls = [line for line in seen["gateway"] if line.get("call_id") == "c-1"]
    assert [line["event"] for line in calls] == ["a call is followed", "a call ended"]
    assert (calls[0]["request_id"], calls[0]["sandbox_id"], calls[0]["tool"]) == ("r-2", sandbox_id, start.tool)
    assert (calls[1]["sandbox_id"], calls[1]["reason"]) == (sandbox_id, "EXITED")


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
            await _share_a_quota(one, box, same)
            assert await there.release_async("session", "user")
        assert await here.list_sessions_async("user") == []


async def _share_a_quota(gateway: str, box: BaseSandboxAsync, same: BaseSandboxAsync) -> None:
    """Check that a call at one gateway counts at another, where the quota is one."""
    async with MeshAsync(f"grpc://{gateway}") as admin:
        await admin.quotas.set({"calls_in_flight": 1, "exposed_ports": 0}, user_id="user")
        with pytest.raises(QuotaExceeded, match="exposed_ports of the user user is reached: 0 of 0"):
            await same.expose(8000)
        running = asyncio.create_task(box.run_shell_command("sleep 60"))

        async def refused() -> bool:
            try:
                await same.run_ipython_cell("n")
            except QuotaExceeded as error:
                return error.facts["name"] == "user" and error.facts["used"] == "1"
            return False

        await until(refused)
        running.cancel()
        await asyncio.wait([running])
        await admin.quotas.set({"calls_in_flight": None}, user_id="user")
