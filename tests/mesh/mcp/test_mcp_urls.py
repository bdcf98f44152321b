"""MCP servers by their URL, streamable HTTP and SSE: those of the official library, inside the sandbox and outside."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, McpServer, Progress
from sandmesh.sandbox.processes import ProcessAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.mcp.mcp_listening import PIXEL
from tests.mesh.mcp.mcp_world import LIBRARY, server_program
from tests.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROGRAM = Path(__file__).with_name("mcp_listening.py")
SECONDS = 60
KINDS = {"http": ("streamable-http", "mcp", 8001), "sse": ("sse", "sse", 8002)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncGenerator[Mesh]:
    """Run one mesh for all tests."""
    async with run_mesh() as mesh:
        yield mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(shared: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    """Start a sandbox that reaches nothing but itself, with the program of the servers."""
    async with BaseSandboxAsync(base_url=shared.addresses[0], network="none") as opened:
        await opened.fs.write("listening.py", server_program(PROGRAM))
        yield opened


@asynccontextmanager
async def listening(box: BaseSandboxAsync, kind: str) -> AsyncGenerator[ProcessAsync]:
    """Run a server inside, with the libraries that sandboxes have for their own speaker of MCP."""
    transport, _, port = KINDS[kind]
    command = ["python", "listening.py", transport, "127.0.0.1", str(port)]
    process = await box.processes.start(command, env=LIBRARY)
    try:
        await process.wait_for_port(port, timeout=SECONDS)
        yield process
    finally:
        await process.kill()
        await process.wait(SECONDS)


async def connect(box: BaseSandboxAsync, kind: str) -> McpServer:
    """Add the server that listens inside, by its URL and under its kind's name."""
    _, path, port = KINDS[kind]
    entry = {"url": f"http://127.0.0.1:{port}/{path}", "type": kind, "headers": {"X-Key": "a key"}}
    (server,) = await box.add_mcp_servers({"mcpServers": {kind: entry}}, overwrite=True)
    return server


async def found(box: BaseSandboxAsync, name: str) -> McpServer:
    """Return the description of a server."""
    (server,) = [server for server in await box.list_mcp_servers() if server.name == name]
    return server


@pytest.mark.parametrize("kind", KINDS)
async def test_tools_of_a_server_with_a_url_give_all_that_they_give(box: BaseSandboxAsync, kind: str) -> None:
    async with listening(box, kind):
        server = await connect(box, kind)
        assert (server.state, server.transport, server.pid) == ("READY", kind, None), server
        assert {"add", "die"} <= (await box.list_tools(kind))[kind].keys()
        added = await box.call_tool("add", {"a": 40, "b": 2})
        assert (added.text, added.structured) == ("42", {"result": 42})
        (image,) = (await box.call_tool("picture")).content
        assert (image["mimeType"], base64.b64decode(image["data"])) == ("image/png", PIXEL)
        failed, wrong = await box.call_tool("fail"), await box.call_tool("add", {"a": "x"})
        assert (failed.is_error, wrong.is_error) == (True, True)
        assert "that went wrong" in failed.text
        assert (await box.call_tool("header", {"name": "x-key"})).text == "a key"
        await check_progress_and_changes(box, kind)
        await box.remove_mcp_server(kind)


async def check_progress_and_changes(box: BaseSandboxAsync, kind: str) -> None:
    """What is told while a call runs comes over a URL too, and so does what is told unasked."""
    async with box.stream("hang") as events:
        async for event in events:
            if event == Progress(2.0, 4.0, "step 2"):
                break
    async with asyncio.timeout(SECONDS):
        assert (await box.call_tool("cancelled")).text == "cancelled"
        async with box.watch_tools() as changes:
            assert (await anext(changes)).server == kind
            await box.call_tool("grow")
            assert "new" in (await anext(changes)).tools
    assert (await box.call_tool("new")).text == "new"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_with_a_url_that_dies_is_told_and_used_again_when_it_is_back(
    box: BaseSandboxAsync, kind: str
) -> None:
    two = {"a": 1, "b": 1}
    async with listening(box, kind):
        await connect(box, kind)
        died = await box.call_tool("die")
        assert died.is_error
        assert f"{kind!r} ended in the middle of the call" in died.text
    down = await box.call_tool("add", two)
    assert down.is_error
    assert f"{kind!r} did not start: ConnectError" in down.text
    assert (await found(box, kind)).state == "FAILED"
    async with listening(box, kind):
        assert (await box.call_tool("add", two)).text == "2"
        again = await found(box, kind)
        assert (again.state, again.error, again.starts) == ("READY", "", 3)
    # It dies between two calls: over SSE that is noticed when it happens, over streamable HTTP by the next call.
    async with listening(box, kind), asyncio.timeout(SECONDS):
        if kind == "http":
            lost = await box.call_tool("add", two)
            assert lost.is_error
            assert "ended in the middle of the call: it no longer knows the session (HTTP 404)" in lost.text
        while (await found(box, kind)).state != "IDLE":
            pass
        assert (await box.call_tool("add", two)).text == "2"
    await box.remove_mcp_server(kind)


@asynccontextmanager
async def listening_outside() -> AsyncGenerator[dict[str, str]]:
    """Run a server of each kind on the machine itself, at an address that no sandbox has, and give their URLs."""
    async with AsyncExitStack() as stack:
        urls: dict[str, str] = {}
        for kind, (transport, path, _) in KINDS.items():
            port = free_port("127.0.0.2")
            command = [sys.executable, str(PROGRAM), transport, "127.0.0.2", str(port)]
            process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
            stack.push_async_callback(process.communicate)
            stack.callback(process.kill)
            await heard(process, b"running on")
            urls[kind] = f"http://127.0.0.2:{port}/{path}"
        yield urls


async def heard(process: asyncio.subprocess.Process, what: bytes) -> None:
    """Wait until a process said something."""
    assert process.stderr is not None
    async with asyncio.timeout(SECONDS):
        while what not in (line := await process.stderr.readline()):
            assert line, "it ended"


async def test_a_server_outside_is_reached_where_the_grant_names_it(shared: Mesh, box: BaseSandboxAsync) -> None:
    async with listening_outside() as urls:
        config = {"mcpServers": {kind: {"url": url, "type": kind} for kind, url in urls.items()}}
        grant = [url.split("/")[2] for url in urls.values()]
        async with BaseSandboxAsync(base_url=shared.addresses[0], network=grant) as granted:
            assert [server.state for server in await granted.add_mcp_servers(config)] == ["READY", "READY"]
            for kind in urls:
                assert (await granted.call_tool(f"{kind}.add", {"a": 1, "b": 2})).structured == {"result": 3}
        walled = await box.add_mcp_servers(config)
        assert [(server.state, server.tools) for server in walled] == [("FAILED", ())] * 2
        for kind in urls:
            await box.remove_mcp_server(kind)


async def test_what_listens_at_a_url_and_is_no_server_is_named(box: BaseSandboxAsync) -> None:
    process = await box.processes.start(["python", "-m", "http.server", "-b", "127.0.0.1", "8003"])
    await process.wait_for_port(8003, timeout=SECONDS)
    here = {"url": "http://127.0.0.1:8003/mcp"}
    servers = await box.add_mcp_servers({"mcpServers": {"post": here, "get": {**here, "type": "sse"}}})
    assert [(server.state, server.error) for server in servers] == [
        ("FAILED", "it answered HTTP 501"),
        ("FAILED", "it answered HTTP 404"),
    ]
    await process.kill()
    for name in ("post", "get"):
        await box.remove_mcp_server(name)
