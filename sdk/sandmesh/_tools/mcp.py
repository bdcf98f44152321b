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
class ConnectMcp(Tool):
    """Connect an MCP client to the sandbox's MCP servers: input and output are lines of JSON.

    Input `{"id", "server", "method", "params"}` is a request for prompts, completions, resources or a level of logging,
    answered by `{"id", "result" or "error"}`; `{"cancel": id}` gives it up. Output `{"server", "method", "params"}` is
    a notification of a server, with `request` one of its requests, which `{"reply": request, "result" or "error"}`
    answers and `{"cancelled": request}` gives up. The end of the input disconnects.
    """

    capabilities: Annotated[
        dict[str, Any] | None, Param("What the client handles, as in the protocol: sampling and elicitation.")
    ] = None


@tool("mcp")
class WatchTools(Tool):
    """Report each change of the sandbox's tools as a line of JSON, until the call is cancelled.

    A line has `server` and `tools`, its current tools' names; `removed` says whether the server was removed.
    """
