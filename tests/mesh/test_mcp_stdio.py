"""`sandmesh mcp`: an MCP client over standard input and output, driven by the official client."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client, types

from sandmeshd.mesh import Mesh


@asynccontextmanager
async def connected(mesh: Mesh, *options: str) -> AsyncGenerator[Client]:
    """Connect to an adapter of our own that uses a mesh."""
    command = ["-m", "sandmeshd.cli.user", "mcp", "--base-url", mesh.addresses[0], *options]
    async with Client(stdio_client(StdioServerParameters(command=sys.executable, args=command))) as client:
        yield client


def text_of(result: types.CallToolResult) -> str:
    """Give a result's text."""
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def test_a_sandboxes_tools_are_listed_and_run_over_standard_input_and_output(mesh: Mesh) -> None:
    async with connected(mesh, "--type", "filesystem") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"run_ipython_cell", "run_shell_command", "read_file"} <= tools.keys()
        assert tools["run_shell_command"].input_schema["required"] == ["command"]
        assert text_of(await client.call_tool("run_ipython_cell", {"code": "print('hidden'); 6 * 7"})) == "hidden\n42"
        with pytest.raises(MCPError, match="has no tool 'no_such_tool'"):
            await client.call_tool("no_such_tool", {})
