"""The tools behind `box.add_mcp_servers` and its siblings: MCP servers that run inside a sandbox."""

from __future__ import annotations

from typing import Annotated, Any

from sandmesh._tools.declaration import Param, Tool, tool


@tool("mcp")
class AddMcpServers(Tool):
    """Start MCP servers in the sandbox; their tools become the sandbox's.

    The call ends when each is ready or has failed, with the status of all.
    """

    config: Annotated[
        dict[str, Any],
        Param('{"mcpServers": {name: {"command", "args", "env", "cwd"} or {"url", "headers", "type"}}}'),
    ]
    overwrite: Annotated[bool, Param("Replace servers of the same names.")] = False


@tool("mcp")
class RemoveMcpServer(Tool):
    """Stop an MCP server and remove its tools."""

    server: Annotated[str, Param("The server's name.", min_length=1)]


@tool("mcp")
class ListMcpServers(Tool):
    """List the MCP servers of the sandbox with their states, their tools and their last output."""


@tool("mcp")
class WatchTools(Tool):
    """Report each change of the sandbox's tools as a line of JSON, until the call is cancelled.

    A line has `server` and `tools`, its current tools' names; `removed` says whether the server was removed.
    """
