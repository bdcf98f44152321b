"""Requests that resume paused sandboxes, and sandboxes that are paused when they are not used."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal

import aiohttp
import grpc
import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, SandboxService, errors
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.mesh import MeshAsync
from sandmesh.shared.wire_errors import translated
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

pytestmark = pytest.mark.needs("user namespaces")

CALLS = 1000
SERVER = (Path(__file__).parents[1] / "network" / "port_server.py").read_text()


async def _kinds(mesh: MeshAsync, sandbox_id: str) -> list[str]:
    """Return what happened to a sandbox, oldest first."""
    return [event.kind for event in await mesh.events.list(sandbox_id=sandbox_id)]


async def _run(address: str, token: str, sandbox_id: str) -> bool:
    """Run a command by gRPC, without a box; return whether it was answered."""
    async with grpc.aio.insecure_channel(address.removeprefix("grpc://")) as channel:
        start = call_pb2.CallStart(
            sandbox_id=sandbox_id, call_id=uuid.uuid4().hex, tool="run_shell_command", arguments=b'{"command": "true"}'
        )
        with translated():
            stub, metadata = call_pb2_grpc.CallServiceStub(channel), (("authorization", f"Bearer {token}"),)
            answers = stub.RunCall(call_pb2.RunCallRequest(start=start), metadata=metadata)
            return any([event.HasField("result") async for answer in answers for event in answer.batch.events])


async def _until_paused(mesh: MeshAsync, sandbox_id: str) -> None:
    async with asyncio.timeout(30):
        async for event in mesh.events.follow(sandbox_id=sandbox_id):
            if event.kind == "paused":
                return


@pytest_asyncio.fixture(loop_scope="module")
async def client(mesh: Mesh) -> AsyncGenerator[MeshAsync]:
    """Return a client of the file's mesh."""
    async with MeshAsync(mesh.addresses[0]) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    """Hold a sandbox."""
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        yield opened


async def test_each_kind_of_request_resumes_a_paused_sandbox_and_is_answered(
    client: MeshAsync, box: BaseSandboxAsync
) -> None:
    await box.run_ipython_cell("x = 41")
    await box.fs.write("kept.txt", "kept")
    await box.pause()
    assert (await box.run_ipython_cell("x + 1")).text == "42"
    await box.pause()
    assert await box.fs.read("kept.txt") == "kept"
    await box.pause()
    assert "generic" in await box.list_tools()
    await box.pause()
    assert await box.kernels.list()
    assert await box.get_status() == "ready"
    kinds = await _kinds(client, box.sandbox_id)
    assert kinds.count("paused") == kinds.count("resumed") == 4


async def test_what_only_looks_at_a_sandbox_leaves_it_paused(client: MeshAsync, box: BaseSandboxAsync) -> None:
    await box.pause()
    assert not await box.check_health()
    assert (await box.get_info())["state"] == "PAUSED"
    assert (await client.sandboxes.get(box.sandbox_id)).auto_resume
    await client.sandboxes.list()
    await client.sandboxes.logs(box.sandbox_id)
    await box.renew()
    assert await box.get_status() == "paused"
    assert "resumed" not in await _kinds(client, box.sandbox_id)


async def test_a_thousand_requests_resume_a_sandbox_once_and_all_are_answered(
    client: MeshAsync, box: BaseSandboxAsync
) -> None:
    await box.run_ipython_cell("x = 0")
    await box.pause()
    answers = await asyncio.gather(*(box.run_shell_command(f"echo {number}") for number in range(CALLS)))
    assert [answer.text.strip() for answer in answers] == [str(number) for number in range(CALLS)]
    assert (await _kinds(client, box.sandbox_id)).count("resumed") == 1


async def test_a_running_call_does_not_resume_its_sandbox_and_input_does(
    client: MeshAsync, box: BaseSandboxAsync
) -> None:
    async with await box.processes.start(["cat"]) as process:
        cell = asyncio.create_task(box.run_ipython_cell("import time; time.sleep(0.5); 'done'"))
        await asyncio.sleep(0.2)
        await box.pause()
        await asyncio.sleep(1.5)
        assert await box.get_status() == "paused"
        await process.write(b"hello\n")
        assert (await cell).text == "'done'"
        await process.close_stdin()
        assert (await process.wait()).exit_code == 0
    assert (await _kinds(client, box.sandbox_id)).count("resumed") == 1


async def test_a_sandbox_that_requests_do_not_resume_stays_paused_and_says_so(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], auto_resume=False) as box:
        await box.pause()
        with pytest.raises(errors.WrongState, match="is paused: resume it"):
            await box.run_ipython_cell("1")
        await box.resume()
        assert (await box.run_ipython_cell("1")).text == "1"


async def test_a_sandbox_that_is_not_used_is_paused_and_the_next_call_finds_its_variables(
    mesh: Mesh, client: MeshAsync
) -> None:
    address = mesh.addresses[0]
    async with BaseSandboxAsync(base_url=address, idle_timeout=5, on_idle="pause") as box:
        await box.run_ipython_cell("x = 41")
        info = await client.sandboxes.get(box.sandbox_id)
        assert (info.on_idle, info.idle_timeout) == ("pause", 5.0)
        await _until_paused(client, box.sandbox_id)
        paused = [event for event in await client.events.list(sandbox_id=box.sandbox_id) if event.kind == "paused"]
        assert [(event.reason, event.actor) for event in paused] == [
            ("it was not used for its idle time (mode memory)", "mesh")
        ]
        assert (await box.run_ipython_cell("x + 1")).text == "42"
        assert await box.get_status() == "ready"


async def test_an_idle_action_without_an_idle_time_is_refused(mesh: Mesh) -> None:
    with pytest.raises(errors.InvalidArgument, match="on_idle needs an idle_timeout"):
        await BaseSandboxAsync(base_url=mesh.addresses[0], on_idle="pause").start()
    with pytest.raises(errors.InvalidArgument, match="is 'release' or 'pause'"):
        BaseSandboxAsync(on_idle="sleep")  # type: ignore[arg-type]


async def test_sandboxes_of_a_session_are_paused_by_what_their_service_says(mesh: Mesh, client: MeshAsync) -> None:
    async with SandboxService(mesh.addresses[0], timeout=30, idle_timeout=5, on_idle="pause") as service:
        (box,) = await service.connect_async("s", "idle")
        await _until_paused(client, box.sandbox_id)
        (again,) = await service.connect_async("s", "idle")
        assert again.sandbox_id == box.sandbox_id
        assert (await box.run_ipython_cell("1")).text == "1"
        await service.release_async("s", "idle")


async def test_ports_resume_a_paused_sandbox_by_http_and_by_websocket(client: MeshAsync, box: BaseSandboxAsync) -> None:
    await box.fs.write("server.py", SERVER)
    server = await box.processes.start("python3 server.py")
    await server.wait_for_port(8000)
    await server.detach()
    url = (await box.expose(8000)).url
    async with aiohttp.ClientSession() as http:
        await box.pause()
        async with http.get(f"{url}echo") as response:
            assert response.status == 200
        await box.pause()
        async with http.ws_connect(f"{url}ws") as socket:
            await socket.send_str("hello")
            first = await socket.receive_str(timeout=30)
            await box.pause()
            await socket.send_str("hello")
            assert await socket.receive_str(timeout=30) == first
    assert (await _kinds(client, box.sandbox_id)).count("resumed") == 3


async def test_another_user_resumes_nothing() -> None:
    settings = {"listen": ("127.0.0.1:0",), "require_token": True}
    async with run_mesh(**settings) as mesh, MeshAsync(mesh.addresses[0]) as admin:
        tokens = {name: (await admin.tokens.create(name)).secret for name in ("ada", "eve")}
        address = f"grpc://{mesh.addresses[1]}"
        async with BaseSandboxAsync(base_url=address, bearer_token=tokens["ada"]) as box:
            await box.pause()
            with pytest.raises(errors.SandboxNotFound):
                await _run(address, tokens["eve"], box.sandbox_id)
            assert await box.get_status() == "paused"
            assert await _run(address, tokens["ada"], box.sandbox_id)
            assert await box.get_status() == "ready"


@pytest.mark.parametrize("mode", ["memory", "files"])
async def test_a_paused_sandbox_keeps_its_place_on_a_full_node(mode: Literal["memory", "files"]) -> None:
    async with run_mesh(max_sandboxes=1) as mesh, BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.fs.write("kept.txt", "kept")
        await box.pause(mode=mode)
        other = BaseSandboxAsync(base_url=mesh.addresses[0], timeout=2)
        with pytest.raises((errors.PoolExhausted, errors.DeadlineExceeded)):
            await other.start()
        await other.close()
        assert await box.get_status() == "paused"
        assert await box.fs.read("kept.txt") == "kept"


async def test_a_pause_with_files_frees_memory_and_the_next_call_has_a_new_kernel(
    client: MeshAsync, box: BaseSandboxAsync
) -> None:
    await box.run_ipython_cell("x = bytearray(200_000_000)")
    await box.fs.write("kept.txt", "kept")
    process = await box.processes.start(["sleep", "3600"])
    await box.pause(mode="files")
    assert (await box.get_info())["pause_mode"] == "PAUSE_MODE_FILES"
    with pytest.raises(errors.WrongState, match="already, in the mode files: resume it first"):
        await box.pause()
    assert await box.fs.read("kept.txt") == "kept"
    assert (await process.wait()).reason == "KILLED"
    first = await box.run_ipython_cell("x = 'x' in globals()")
    assert not first.is_error or "The kernel died" in first.text
    assert (await box.run_ipython_cell("'x' in globals() and x")).text == "False"
    reasons = [event.reason for event in await client.events.list(sandbox_id=box.sandbox_id) if event.kind == "paused"]
    assert reasons == ["mode files"]
    await box.pause()
    assert (await box.get_info())["pause_mode"] == "PAUSE_MODE_MEMORY"


async def test_a_pause_mode_that_the_driver_lacks_is_refused_and_nothing_is_paused(box: BaseSandboxAsync) -> None:
    with pytest.raises(errors.CapabilityMissing, match="lacks pause_checkpoint") as caught:
        await box.pause(mode="checkpoint")
    assert caught.value.facts["needs"] == "pause_checkpoint"
    assert await box.get_status() == "ready"
    with pytest.raises(errors.InvalidArgument, match="is 'memory', 'files' or 'checkpoint'"):
        await box.pause(mode="all")  # type: ignore[arg-type]
