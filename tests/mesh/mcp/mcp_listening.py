"""An MCP server by the official library, over HTTP: `python mcp_listening.py streamable-http|sse HOST PORT`."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.request_state import RequestStateSecurity


class _Plain:
    """Seals nothing: no tool here asks for anything, and what would encrypt is not in the client's library."""

    def seal(self, payload: bytes) -> str:
        return payload.decode()

    def unseal(self, token: str) -> bytes:
        return token.encode()


server = MCPServer("listening", request_state_security=RequestStateSecurity(codec=_Plain()))
stopped = asyncio.Event()
PIXEL = bytes.fromhex("89504e470d0a1a0a")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def picture() -> Image:
    """Show something."""
    return Image(data=PIXEL, format="png")


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("that went wrong")


@server.tool()
def header(ctx: Context, name: str) -> str:
    """Return a header of the request."""
    return str((ctx.headers or {}).get(name))


@server.tool()
async def hang(ctx: Context) -> None:
    """Report two steps and never end."""
    try:
        await ctx.report_progress(1, 4, "step 1")
        await ctx.report_progress(2, 4, "step 2")
        await asyncio.Event().wait()
    finally:
        stopped.set()


@server.tool()
async def cancelled() -> str:
    """Wait until a call was cancelled."""
    await stopped.wait()
    return "cancelled"


@server.tool()
async def grow(ctx: Context) -> str:
    """Add one tool."""
    server.add_tool(lambda: "new", name="new")
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
def die() -> None:
    """End in the middle of a call."""
    os._exit(3)


if __name__ == "__main__":
    transport, host, port = sys.argv[1:]
    if transport == "sse":
        server.run("sse", host=host, port=int(port))
    else:
        server.run("streamable-http", host=host, port=int(port))
