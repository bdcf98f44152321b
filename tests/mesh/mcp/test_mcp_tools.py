"""Tools of MCP servers as functions, and beside a sandbox's own tools in the adapter."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import types

from sandmesh import BaseSandbox, BaseSandboxAsync
from sandmesh.errors import InvalidArgument, WrongState
from sandmesh.tools import MCPConfigConverter
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.mcp.mcp_world import connected, serving, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROGRAM = Path(__file__).with_name("mcp_program.py").read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncGenerator[Mesh]:
    """Run one mesh for all tests."""
    async with run_mesh() as mesh:
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def box(shared: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    """Open a sandbox."""
    async with BaseSandboxAsync(base_url=shared.addresses[0]) as opened:
        yield opened


def config(*names: str) -> dict[str, Any]:
    """Return the configuration that starts the test's server under these names."""
    return {"mcpServers": {name: {"command": "python", "args": ["-c", PROGRAM]} for name in names}}


async def test_tools_of_servers_are_functions_that_run_in_a_sandbox(shared: Mesh, box: BaseSandboxAsync) -> None:
    converter = MCPConfigConverter(server_configs=config("one"))
    tools = {tool.name: tool for tool in await converter.to_builtin_tools_async(box, blacklist=["die", "one.hang"])}
    assert {"echo", "image"} <= tools.keys()
    assert not {"die", "hang"} & tools.keys()
    echo = tools["echo"]
    assert echo.schema["function"]["parameters"]["required"] == ["text"]
    assert (echo.server, echo.sandbox) == ("one", box)
    said = await echo.call_async(text="there")
    assert (said.text, said.structured) == ("there", {"said": "there"})
    async with BaseSandboxAsync(base_url=shared.addresses[0]) as other:
        assert await other.list_mcp_servers() == []
        assert (await echo.call_async(text="elsewhere", sandbox=other)).text == "elsewhere"
        assert [server.name for server in await other.list_mcp_servers()] == ["one"]


async def test_servers_may_be_given_under_the_name_that_agentscope_runtime_has(
    shared: Mesh, box: BaseSandboxAsync
) -> None:
    [added] = await box.add_mcp_servers(server_configs=config("one"))
    assert (added.name, added.state) == ("one", "READY")
    with pytest.raises(InvalidArgument, match="pass one"):
        await box.add_mcp_servers(config("two"), server_configs=config("two"))
    with pytest.raises(InvalidArgument, match="mcpServers"):
        await box.add_mcp_servers()
    sync_box = BaseSandbox(box.sandbox_id, base_url=shared.addresses[0])

    def replace() -> list[str]:
        with sync_box:
            return [server.state for server in sync_box.add_mcp_servers(server_configs=config("one"), overwrite=True)]

    assert await asyncio.to_thread(replace) == ["READY"]


async def test_without_a_sandbox_one_is_made_to_ask_in_and_one_for_each_call(shared: Mesh) -> None:
    program = (
        "import json, sys\n"
        "from sandmesh.tools import MCPConfigConverter\n"
        "[echo] = MCPConfigConverter(json.loads(sys.argv[1])).to_builtin_tools(whitelist=['echo'])\n"
        "print(echo.sandbox, echo(text='made for it').text)\n"
    )
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, json.dumps(config("one"))),
        env={**os.environ, "SANDMESH_ADDRESS": shared.addresses[0]},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await asyncio.wait_for(ran.communicate(), 100)
    assert printed.decode() == "None made for it\n"


async def test_two_servers_with_one_tool_name_are_told_apart_and_lists_choose(box: BaseSandboxAsync) -> None:
    converter = MCPConfigConverter(server_configs=config("one", "two"))
    tools = await converter.to_builtin_tools_async(box, whitelist=["echo", "one.fail"])
    assert sorted(tool.name for tool in tools) == ["fail", "one_echo", "two_echo"]
    assert (await tools[-1].call_async(text="x")).text == "x"
    with pytest.raises(InvalidArgument, match="no server has the tool nothing"):
        await converter.to_builtin_tools_async(box, whitelist=["nothing"])


async def test_a_broken_server_is_told_of_and_leaves_the_others(box: BaseSandboxAsync) -> None:
    broken = {"broken": {"command": "sh", "args": ["-c", "echo so it ends >&2; exit 3"]}}
    converter = MCPConfigConverter({"mcpServers": {**config("well")["mcpServers"], **broken}})
    assert "echo" in {tool.name for tool in await converter.to_builtin_tools_async(box)}
    assert "so it ends" in converter.failed["broken"]
    with pytest.raises(WrongState, match="so it ends"):
        await MCPConfigConverter({"mcpServers": broken}).to_builtin_tools_async(box)
    with pytest.raises(InvalidArgument, match="mcpServers"):
        MCPConfigConverter({"servers": {}})


async def test_the_adapter_shows_added_servers_tools_and_tells_when_these_change(shared: Mesh) -> None:
    changed = asyncio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    steps: list[tuple[float, float | None, str | None]] = []
    reported = asyncio.Event()

    async def follow(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))
        if progress == 2:
            reported.set()

    servers = config("one", "two")["mcpServers"]
    async with (
        serving(shared.addresses[0], mcp_servers=servers) as url,
        connected(url, message_handler=hear) as client,
    ):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"run_ipython_cell", "one.echo", "two.echo"} <= tools.keys()
        echo = tools["one.echo"]
        assert (echo.title, echo.output_schema and echo.output_schema["type"]) == ("Echo", "object")
        assert echo.annotations is not None
        assert echo.annotations.read_only_hint
        said = await client.call_tool("one.echo", {"text": "structured"})
        assert said.structured_content == {"said": "structured"}
        failed = await client.call_tool("two.fail", {})
        assert (failed.is_error, text_of(failed)) == (True, "that went wrong")
        hanging = asyncio.create_task(client.call_tool("one.hang", {}, progress_callback=follow))
        await asyncio.wait_for(reported.wait(), 30)
        assert steps[-1] == (2.0, 4.0, "step 2")
        hanging.cancel()
        assert text_of(await client.call_tool("one.cancelled", {})) == "1 cancelled"
        changed.clear()
        await client.call_tool("two.grow", {"name": "grown"})
        listed: set[str] = set()
        async with asyncio.timeout(30):
            while "grown" not in listed:
                # What is told first may be of a change before that one, and late.
                await changed.wait()
                changed.clear()
                listed = {tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools}
