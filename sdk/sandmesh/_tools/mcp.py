"""What `box.add_mcp_servers` and its kin are made of: MCP servers that run inside a sandbox."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from sandmesh._tools.declaration import Tool, tool


@tool("mcp")
class AddMcpServers(Tool):
    """Start MCP servers in the sandbox; their tools are the sandbox's from then on.

    It answers when each is ready or has failed, with all that is known of them.
    """

    config: Annotated[
        dict[str, Any],
        Field(description='{"mcpServers": {name: {"command", "args", "env", "cwd"} or {"url", "headers", "type"}}}'),
    ]
    overwrite: Annotated[bool, Field(description="Replace servers of the same names.")] = False


@tool("mcp")
class RemoveMcpServer(Tool):
    """End an MCP server and forget its tools."""

    server: Annotated[str, Field(min_length=1, description="The server's name.")]


@tool("mcp")
class ListMcpServers(Tool):
    """List the MCP servers of the sandbox with their states, their tools and their last words."""


@tool("mcp")
class WatchTools(Tool):
    """Tell of each change of the sandbox's tools, as a line of JSON, until it is cancelled.

    A line has `server` and `tools`, the names that it has now; `removed` says whether the server is gone.
    """
