"""The door for AgentScope Runtime's SDK: the package as it is published, and requests that it never sends."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from sandmesh.errors import InvalidArgument
from sandmeshd.facades.agentscope.app import NAMES
from tests.adb_device import HostServer, run_device
from tests.environments import environment_of
from tests.mesh.conftest import run_mesh
from tests.mesh.doors.agentscope_world import World, open_world
from tests.mesh.viewers import viewing

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "agentscope"
PACKAGE = "agentscope-runtime==1.1.6.post2"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh with this door and E2B's for all tests."""
    async with open_world(e2b=True) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(world: World) -> str:
    """Return ada's token."""
    return await world.token("ada")


async def test_a_mesh_without_the_setting_has_no_such_door() -> None:
    async with run_mesh() as mesh, aiohttp.ClientSession() as http:
        assert "agentscope" not in mesh.doors
        (url, *_) = await mesh.http.open()
        async with http.post(f"{url}/list_session_keys", json={}) as response:
            assert response.status == 404


async def test_settings_that_contradict_the_door_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="SANDMESH_WORKERS"):
        async with run_mesh(agentscope=True, workers=2):
            pass


@pytest.mark.parametrize("program", ["runtime.py", "rest.py"])
async def test_the_unmodified_package_needs_an_address_and_a_token_alone(world: World, program: str) -> None:
    python = await asyncio.to_thread(environment_of, PACKAGE)
    environment = {**os.environ, "BASE_URL": world.url, "BEARER_TOKEN": await world.token(f"package's {program}")}
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(EXAMPLES / program),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 200)
    assert (process.returncode, out.decode().splitlines()[-1:]) == (0, ["every call answered"]), err.decode()


async def test_training_environments_answer_the_unmodified_package(world: World) -> None:
    python = await asyncio.to_thread(environment_of, PACKAGE)
    environment = {**os.environ, "BASE_URL": world.url, "BEARER_TOKEN": await world.token("trainer")}
    program = (str(python), str(EXAMPLES / "training.py"))
    process = await asyncio.create_subprocess_exec(
        *program, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 300)
    assert (process.returncode, out.decode().splitlines()[-1:]) == (0, ["every call answered"]), err.decode()


async def test_the_routes_of_a_sandboxs_own_server_are_behind_the_proxy(world: World, ada: str) -> None:
    identity = (await world.call(ada, "create_from_pool", sandbox_type="base"))[1]["data"]
    place = f"/proxy/{identity}"
    assert await world.send("GET", f"{place}/healthz", ada) == (200, "OK")
    status, found = await world.send("POST", f"{place}/tools/run_ipython_cell", ada, json={"code": "print(6 * 7)"})
    assert (status, found["content"][0]["text"]) == (200, "42\n")
    status, found = await world.send("POST", f"{place}/tools/run_shell_command", ada, json={"command": "echo here"})
    assert (status, found["content"][0]["text"]) == (200, "here\n")
    status, found = await world.send("GET", f"{place}/mcp/list_tools", ada)
    assert (status, "run_shell_command" in json.dumps(found)) == (200, True)
    call = {"tool_name": "run_shell_command", "arguments": {"command": "echo by name"}}
    status, found = await world.send("POST", f"{place}/mcp/call_tool", ada, json=call)
    assert (status, found["isError"]) == (200, False)
    status, found = await world.send("POST", f"{place}/watcher/commit_changes", ada, json={})
    assert (status, "commit_changes" in found["detail"]) == (501, True)
    assert (await world.send("POST", f"{place}/tools/run_ipython_cell", ada, json={}))[0] == 422
    assert (await world.send("POST", f"{place}/tools/run_ipython_cell", ada, data=b"x"))[0] == 400
    assert (await world.send("GET", f"{place}/healthz", await world.token("eve of proxies")))[0] == 404
    assert (await world.send("GET", f"{place}/healthz"))[0] == 401


@pytest.mark.needs("user namespaces")
@pytest.mark.needs("chromium")
async def test_the_unmodified_package_shows_a_desktop_and_a_browser(world: World) -> None:
    python = await asyncio.to_thread(environment_of, PACKAGE)
    token = await world.token("watcher")
    environment = {**os.environ, "BASE_URL": world.url, "BEARER_TOKEN": token}
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(EXAMPLES / "screens.py"),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    url = ""
    async with asyncio.timeout(300):
        for title, colours in (("Desktop", 5), ("Desktop", 5), ("Browser", 1)):
            url = (await process.stdout.readline()).decode().strip()
            async with world.http.get(url) as response:
                assert f"<title>{title}</title>" in await response.text()
            if colours > 1:
                await asyncio.gather(is_watched(url), speaks_vnc(world, url))
            async with world.http.get(url.replace("password=", "password=x")) as response:
                assert response.status == 404
            process.stdin.write(b"next\n")
        assert (await process.stdout.readline()).decode() == "every call answered\n"
        await process.wait()
    async with world.http.get(url) as response:
        # The gateway's page on a sandbox that is gone.
        assert response.status in (404, 502)


async def is_watched(url: str) -> None:
    """Open the page in a browser, and wait until it shows the desktop."""
    async with viewing(url) as person:
        await person.sees_a_picture(1024, 768)


async def speaks_vnc(world: World, url: str) -> None:
    """Connect to the WebSocket as a client of VNC with a page of its own does, and wait until it has control."""
    address, _, query = url.partition("/vnc/vnc_relay.html")
    async with world.http.ws_connect(f"{address}{query}", protocols=("binary",)) as socket:
        assert (await socket.receive_bytes()).startswith(b"RFB 003.008")


@pytest.mark.needs("adb")
async def test_the_unmodified_package_uses_an_android_device(tmp_path_factory: pytest.TempPathFactory) -> None:
    python = await asyncio.to_thread(environment_of, PACKAGE)
    async with run_device() as device, HostServer(tmp_path_factory.mktemp("adb")).running() as server:
        await server.attach(device)
        async with open_world(adb_devices=[device.serial], adb_server=server.address) as world:
            environment = {**os.environ, "BASE_URL": world.url, "BEARER_TOKEN": await world.token("phone")}
            process = await asyncio.create_subprocess_exec(
                *(str(python), str(EXAMPLES / "mobile.py")),
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            async with asyncio.timeout(120):
                url = (await process.stdout.readline()).decode().strip()
                async with world.http.get(url) as response:
                    assert "<title>Phone</title>" in await response.text()
                process.stdin.write(b"next\n")
                assert (await process.stdout.readline()).decode() == "every call answered\n"
                await process.wait()


async def test_each_method_answers_with_what_it_did(world: World) -> None:
    token, program = await world.token("reader"), (Path(__file__).parents[1] / "mcp" / "mcp_program.py").read_text()
    identity = (await world.call(token, "create", sandbox_type="base", meta={"session_ctx_id": "read"}))[1]["data"]

    async def data(method: str, **arguments: Any) -> Any:
        named = {} if method in ("get_session_mapping", "list_session_keys") else {"identity": identity}
        status, found = await world.call(token, method, **named, **arguments)
        assert status == 200, found
        return found["data"]

    servers = {"mcpServers": {"well": {"command": "python", "args": ["-c", program]}}}
    broken = {"mcpServers": {"ill": {"command": "python", "args": ["-c", "exit(3)"]}}}
    assert await data("add_mcp_servers", server_configs=servers) == "OK"
    assert await data("add_mcp_servers_async", server_configs=servers) == "OK"
    assert await data("add_mcp_servers", server_configs=servers, overwrite=True) == "OK"
    assert "ill" in (failed := await data("add_mcp_servers", server_configs=broken))["content"][0]["text"]
    assert failed["isError"] is True
    assert "echo" in (await data("list_tools"))["well"]
    assert (await data("list_tools", tool_type="well")).keys() == {"well"}
    echo = await data("call_tool", tool_name="echo", arguments={"text": "said again"})
    assert (echo["content"][0]["text"], echo["isError"]) == ("said again", False)
    assert (await data("get_info"))["session_ctx_id"] == "read"
    assert await data("check_health") is True
    assert await data("get_session_mapping", session_ctx_id="read") == [identity]
    assert await data("list_session_keys") == ["read"]
    assert (await data("stop"), await data("get_status"), await data("start"), await data("get_status")) == (
        True,
        "paused",
        True,
        "running",
    )
    place = f"/proxy/{identity}/mcp/add_servers"
    added = await world.send("POST", place, token, json={"server_configs": servers, "overwrite": True})
    assert added == (200, "OK")
    unfitting: list[dict[str, Any]] = [{}, {"mcpServers": {}}, {"mcpServers": ["well"]}, {"mcpServers": {"other": {}}}]
    for unfit in unfitting:
        status, found = await world.call(token, "add_mcp_servers", identity=identity, server_configs=unfit)
        assert (status, bool(found["detail"])) == (400, True)
    assert await data("release") is True
    assert await data("list_session_keys") == []


async def test_tokens_that_are_missing_or_wrong_are_401(world: World) -> None:
    for token in (None, "nonsense", "smesh_" + "a" * 16 + "_" + "a" * 52):
        for method in ("list_session_keys", "create_from_pool", "cleanup_async"):
            status, found = await world.call(token, method)
            assert (status, isinstance(found["detail"], str)) == (401, True)
    assert (await world.send("GET", "/proxy/sb_x/workspace/list?path=."))[0] == 401
    assert await world.send("GET", "/health") == (200, {"status": "healthy", "version": "sandmesh"})


async def test_another_users_sandbox_is_not_found_by_any_route(world: World, ada: str) -> None:
    eve = await world.token("eve")
    _, made = await world.call(ada, "create_from_pool", sandbox_type="base", meta={"session_ctx_id": "of-ada"})
    identity = made["data"]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_info", {}),
        ("get_status", {}),
        ("check_health", {}),
        ("start", {}),
        ("stop", {}),
        ("list_tools", {}),
        ("call_tool", {"tool_name": "run_shell_command", "arguments": {"command": "true"}}),
        ("add_mcp_servers", {"server_configs": {"mcpServers": {}}}),
    ]
    for method, more in calls:
        for name in (method, f"{method}_async"):
            assert (await world.call(eve, name, identity=identity, **more))[0] == 404, name
    for method, path in (
        ("GET", "file?path=a"),
        ("PUT", "file?path=a"),
        ("GET", "list?path=."),
        ("GET", "exists?path=a"),
        ("DELETE", "entry?path=a"),
    ):
        assert (await world.send(method, f"/proxy/{identity}/workspace/{path}", eve))[0] == 404
    assert await world.call(eve, "release", identity=identity) == (200, {"data": False})
    assert await world.call(eve, "list_session_keys") == (200, {"data": []})
    assert await world.call(eve, "get_session_mapping", session_ctx_id="of-ada") == (200, {"data": []})
    assert (await world.call(eve, "cleanup"))[0] == 200
    assert (await world.call(ada, "check_health", identity=identity)) == (200, {"data": True})
    assert await world.call(ada, "release", identity=identity) == (200, {"data": True})
    assert await world.call(ada, "release", identity=identity) == (200, {"data": False})


@pytest.mark.parametrize(
    ("method", "arguments", "status", "says"),
    [
        ("create_from_pool", {"sandbox_type": "nonsense"}, 404, "nonsense"),
        ("create_from_pool", {"sandbox_type": ["base"]}, 422, "sandbox_type"),
        ("create", {"sandbox_type": "base", "mount_dir": "/etc"}, 400, "mount_dir"),
        ("create", {"sandbox_type": "base", "meta": "x"}, 422, "meta"),
        ("get_info", {}, 422, "identity"),
        ("get_info", {"identity": "sb_nobody"}, 404, "sb_nobody"),
        ("call_tool", {"identity": "../x", "tool_name": "t"}, 404, "No container"),
    ],
)
async def test_what_does_not_fit_is_refused_with_the_reason(
    world: World, ada: str, method: str, arguments: dict[str, Any], status: int, says: str
) -> None:
    found_status, found = await world.call(ada, method, **arguments)
    assert (found_status, says in found["detail"]) == (status, True), found


async def test_what_is_no_request_is_refused(world: World, ada: str) -> None:
    for data in (b"", b"{", b"[]", b"\xff"):
        assert (await world.send("POST", "/get_info", ada, data=data))[0] == 400
    assert (await world.send("GET", "/proxy/sb_x/elsewhere", ada))[0] == 501
    page = "/desktop/sb_x/vnc/vnc_relay.html"
    assert (await world.send("GET", page, ada))[0] == 401
    assert (await world.send("GET", f"{page}?password=guessed", ada))[0] == 404
    assert (await world.send("GET", "/get_info", ada))[0] == 405


async def test_files_are_refused_by_what_is_wrong_with_them(world: World, ada: str) -> None:
    identity = (await world.call(ada, "create", sandbox_type="base"))[1]["data"]
    place = f"/proxy/{identity}/workspace"
    assert (await world.send("GET", f"{place}/file?path=missing", ada))[0] == 404
    assert (await world.send("GET", f"{place}/file", ada))[0] == 422
    assert (await world.send("GET", f"{place}/list?path=.&depth=0", ada))[0] == 422
    assert (await world.send("POST", f"{place}/move", ada, json={"source": 1}))[0] == 422
    assert (await world.send("GET", f"{place}/file?path=/etc/passwd", ada))[0] in (400, 403, 404)
    assert (await world.send("GET", f"{place}/elsewhere?path=x", ada))[0] == 404
    data = os.urandom(5 << 20)
    status, written = await world.send("PUT", f"{place}/file?path=deep/down/big", ada, data=io.BytesIO(data))
    assert (status, written["size"], written["path"]) == (200, len(data), "/workspace/deep/down/big")
    async with world.http.get(
        f"{world.url}{place}/file?path=deep/down/big&format=bytes", headers={"Authorization": f"Bearer {ada}"}
    ) as response:
        assert await response.read() == data
    assert await world.call(ada, "cleanup") == (200, {"data": None})
    assert await world.call(ada, "list_session_keys") == (200, {"data": []})


async def test_no_request_is_an_error_of_the_server(world: World, ada: str) -> None:
    chance = random.Random(7)  # noqa: S311 - the same each time
    values: list[object] = [None, True, -1, 1e308, "", "x", "\0", "\ud800", "base", "../x", [], ["x"], {}, {"a": 1}]
    names = ["identity", "sandbox_type", "tool_name", "arguments", "meta", "session_ctx_id", "server_configs"]
    identity = (await world.call(ada, "create", sandbox_type="base"))[1]["data"]
    methods = [name for name in NAMES if name != "cleanup"]
    for number in range(250):
        body: dict[str, object] = {name: chance.choice(values) for name in chance.sample(names, 3)}
        if number % 3:
            body["identity"] = identity
        data = json.dumps(body).encode() if number % 5 else chance.randbytes(40)
        method = chance.choice(methods) + chance.choice(["", "_async"])
        if method.startswith(("release", "stop")):
            data = b"{}" if number % 2 else b"[1]"
        status, found = await world.send("POST", f"/{method}", ada, data=data)
        assert status < 500 or status in (501, 503), (method, body, found)
    for number in range(100):
        path = chance.choice(["file", "list", "exists", "entry", "move", "", "x"])
        query = f"path={chance.choice(['a', '', '..', '/etc/passwd', '%00', '%ff', 'a' * 5000])}&depth={number - 50}"
        place = f"/proxy/{chance.choice([identity, identity, 'x', '%00'])}/workspace/{path}?{query}"
        method = chance.choice(["GET", "PUT", "POST", "DELETE", "PATCH"])
        status, found = await world.send(method, place, ada, data=chance.randbytes(20))
        assert status < 500 or status in (501, 503), (method, place, found)
    assert await world.send("GET", "/health") == (200, {"status": "healthy", "version": "sandmesh"})
    assert await world.call(ada, "cleanup") == (200, {"data": None})


async def test_clients_that_are_broken_or_slow_hold_nobody_else_up(world: World, ada: str) -> None:
    place = urlsplit(world.url)
    head = f"POST /list_tools HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ada}\r\nContent-Length: 1000\r\n\r\n"
    writers: list[asyncio.StreamWriter] = []
    for number in range(90):
        _, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write([head.encode(), b"POST /create HTTP/1.1\r\nHo", b"\x16\x03\x01"][number % 3])
        writers.append(writer)
    for _ in range(20):
        assert await world.send("GET", "/health") == (200, {"status": "healthy", "version": "sandmesh"})
        assert (await world.call(ada, "list_session_keys"))[0] == 200
    for writer in writers:
        writer.close()
    large = io.BytesIO(b" " * (70 << 20))
    assert (await world.send("POST", "/list_session_keys", ada, data=large))[0] in (400, 413)
