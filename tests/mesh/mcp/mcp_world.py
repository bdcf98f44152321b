"""An MCP adapter that serves HTTP here, and official clients of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from sandmesh import SandboxAsync, errors
from sandmeshd.drivers.node.agent_config import AGENT, MCP
from sandmeshd.facades.mcp import AdapterSettings, McpHttpSettings
from sandmeshd.facades.mcp.http import open_http_adapter

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "a test", "version": "1"},
    },
}
# Servers inside have the library of the agent's own client, without what only a server would import.
LIBRARY = {"PYTHONPATH": f"{MCP}:{AGENT}"}
_PLACEHOLDERS = "from sandmeshd.agent.mcp.client import placeholders\nplaceholders.install()\n"
ACCEPT = {"Accept": "application/json, text/event-stream"}


def server_program(source: Path) -> str:
    """Return the text of a server's program that runs inside with `LIBRARY`."""
    return f"{_PLACEHOLDERS}exec(compile({source.read_text()!r}, 'server', 'exec'))"


@asynccontextmanager
async def serving(address: str, http: dict[str, Any] | None = None, **adapter: Any) -> AsyncGenerator[str]:
    """Serve MCP for a mesh at an address, and give the URL."""
    settings = McpHttpSettings.model_validate({"listen": ("127.0.0.1:0",), **(http or {})})
    async with open_http_adapter(AdapterSettings(base_url=address, **adapter), settings) as urls:
        yield urls[0]


@asynccontextmanager
async def connected(url: str, token: str = "", **options: Any) -> AsyncGenerator[Client]:
    """Connect as whom the token names."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        create_mcp_http_client(headers) as http,
        Client(streamable_http_client(url, http_client=http), **options) as client,
    ):
        yield client


async def post(url: str, headers: dict[str, str], message: dict[str, Any] = INITIALIZE) -> httpx2.Response:
    """Send a message by hand."""
    async with httpx2.AsyncClient() as client:
        return await client.post(url, json=message, headers={**ACCEPT, **headers})


@asynccontextmanager
async def streaming(url: str, headers: dict[str, str]) -> AsyncGenerator[None]:
    """Hold the stream of a session open on which a server tells of things unasked."""
    async with (
        httpx2.AsyncClient() as client,
        client.stream("GET", url, headers={"Accept": "text/event-stream", **headers}) as answer,
    ):
        assert answer.status_code == 200
        yield


async def delete(url: str, headers: dict[str, str]) -> httpx2.Response:
    """End a session by hand."""
    async with httpx2.AsyncClient() as client:
        return await client.delete(url, headers=headers)


def named(answer: httpx2.Response) -> dict[str, str]:
    """Return the header that names the session which an answer opened."""
    return {"mcp-session-id": answer.headers["mcp-session-id"]}


def text_of(result: types.CallToolResult) -> str:
    """Return a result's text."""
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def sandbox_of(client: Client) -> str:
    """Return the id of the sandbox in use, of a client that manages its sandboxes; a call makes one first."""
    await client.call_tool("run_shell_command", {"command": "true"})
    listed: Any = (await client.call_tool("list_sandboxes", {})).structured_content
    boxes: list[dict[str, Any]] = listed["sandboxes"]
    (found,) = [box["sandbox_id"] for box in boxes if box["in_use"]]
    return str(found)


@asynccontextmanager
async def ending(address: str, sandbox_id: str) -> AsyncGenerator[None]:
    """Watch a sandbox by a call in it: after the block it must end by itself."""
    async with SandboxAsync(sandbox_id, base_url=address) as box:
        process = await box.processes.start("echo up; sleep 1000")
        await process.wait_for_log("up")
        yield
        with pytest.raises(errors.SandboxLost):
            await process.wait(30)
