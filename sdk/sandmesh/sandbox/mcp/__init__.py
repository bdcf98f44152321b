"""MCP servers inside a sandbox: adding, removing, listing and watching them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from sandmesh._calls.event_stream import EventStream
from sandmesh._calls.feed import Feed
from sandmesh._calls.runner import run_call
from sandmesh._tools import Tool, build
from sandmesh._tools.mcp import AddMcpServers, ConnectMcp, ListMcpServers, RemoveMcpServer, WatchTools
from sandmesh.errors import InvalidArgument, WrongState
from sandmesh.events import Output
from sandmesh.results import ToolResult
from sandmesh.sandbox.handle import SandboxHandle
from sandmesh.sandbox.mcp.connection import Handlers, McpConnectionAsync, NotificationHandler, RequestHandler

ServerState = Literal["IDLE", "STARTING", "READY", "FAILED"]


@dataclass(frozen=True, slots=True)
class McpServer:
    """The status of an MCP server.

    An IDLE or FAILED server is not running and starts with the next call of one of its tools. `error` says why it
    failed or ended, `problems` what is wrong with one that works, `log` has the last lines of its standard error.
    """

    name: str
    state: ServerState
    transport: Literal["stdio", "http", "sse"]
    tools: tuple[str, ...]
    error: str = ""
    problems: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    starts: int = 0
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class ToolsChanged:
    """A change of a server's tools: `tools` are the current ones, none for a server that was `removed`."""

    server: str
    tools: tuple[str, ...]
    removed: bool = False


class ToolChanges(AsyncIterator[ToolsChanged]):
    """The changes of a sandbox's tools, from the first `anext` until it is closed."""

    def __init__(self, events: EventStream) -> None:
        self._events = events
        self._rest = b""
        self._ready: deque[ToolsChanged] = deque()

    async def __anext__(self) -> ToolsChanged:
        """Wait for the next change."""
        if not self._ready:
            self._ready.extend(await self.take())
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def take(self) -> list[ToolsChanged]:
        """Wait for changes and return all that have arrived; an empty list is the end."""
        changes: list[ToolsChanged] = []
        while not changes:
            events = await self._events.take()
            if not events:
                break
            for event in events:
                self._rest += event.data if isinstance(event, Output) else b""
            *lines, self._rest = self._rest.split(b"\n")
            changes = [_read_change(line) for line in lines]
        return changes

    async def aclose(self) -> None:
        """Stop watching."""
        await self._events.aclose()

    async def __aenter__(self) -> ToolChanges:
        """Return the iterator itself."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop watching."""
        await self.aclose()


class McpServersAsync(SandboxHandle):
    """The methods of a box that are about MCP servers inside its sandbox."""

    async def add_mcp_servers(
        self,
        config: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        *,
        server_configs: Mapping[str, Any] | None = None,
    ) -> list[McpServer]:
        """Start MCP servers inside the sandbox: `{"mcpServers": {name: {"command": ...} or {"url": ...}}}`.

        Their tools become the sandbox's: `list_tools` has them under the server's name. A server that fails to start is
        returned with the reason and its last output, and does not affect the others. `server_configs` is another name
        of `config`.

        Raises:
            InvalidArgument: The config does not fit, or a server of that name exists and `overwrite` is not set;
                nothing was changed.
            CapabilityMissing: Sandboxes of this driver cannot run MCP servers.
        """
        servers = _one_config(config, server_configs)
        return _read(await self._call_mcp(build(AddMcpServers, servers, overwrite)))

    async def remove_mcp_server(self, name: str) -> None:
        """Stop an MCP server and remove its tools.

        Raises:
            InvalidArgument: There is no server of that name.
        """
        await self._call_mcp(build(RemoveMcpServer, name))

    async def list_mcp_servers(self) -> list[McpServer]:
        """List the sandbox's MCP servers by name, each with its state, tools and last output."""
        return _read(await self._call_mcp(ListMcpServers()))

    def watch_tools(self) -> ToolChanges:
        """Watch the changes of the sandbox's tools: `async for changed in box.watch_tools(): ...`.

        The first changes are one for each existing MCP server; then comes one for each server that is added, removed or
        announces that its tools changed.
        """
        attachment = self._attached()
        return ToolChanges(EventStream(lambda: attachment.usable().mux, attachment.order(WatchTools(), 0.0)))

    async def connect_mcp(
        self,
        capabilities: Mapping[str, Any] | None = None,
        on_request: RequestHandler | None = None,
        on_notification: NotificationHandler | None = None,
    ) -> McpConnectionAsync:
        """Connect to the sandbox's MCP servers as their client, for prompts, completions and resources.

        Servers that start from then on are told of the capabilities, "sampling" and "elicitation" as the protocol has
        them. Their requests for them go to `on_request`, which is called with server, method and params and returns
        the result; what it raises refuses the request. Without it they are refused. `on_notification` is called
        likewise with log messages and changes.

        Raises:
            InvalidArgument: There are capabilities and no `on_request`.
        """
        if capabilities and on_request is None:
            raise InvalidArgument("capabilities need on_request, which handles what servers then request")
        attachment = self._attached()
        order = attachment.order(build(ConnectMcp, dict(capabilities or {}) or None), 0.0)
        order.takes_input = True
        return McpConnectionAsync(Feed(attachment.usable().mux, order), Handlers(on_request, on_notification))

    async def _call_mcp(self, declared: Tool) -> ToolResult:
        attachment = self._attached()
        result = await run_call(attachment.usable().mux, attachment.order(declared, self._config.timeout))
        if result.is_error:
            raise WrongState(str(result["meta"]["message"]), {"state": "REFUSED"})
        return result


def _one_config(config: object, server_configs: object) -> dict[str, Any]:
    if config is not None and server_configs is not None:
        raise InvalidArgument("config and server_configs are the same argument: pass one", {"argument": "config"})
    servers = server_configs if config is None else config
    if not isinstance(servers, Mapping):
        raise InvalidArgument(f'config must be {{"mcpServers": {{...}}}}, not {servers!r}', {"argument": "config"})
    return dict(cast("Mapping[str, Any]", servers))


def _read(result: ToolResult) -> list[McpServer]:
    servers: list[dict[str, Any]] = (result.structured or {}).get("servers", [])
    for server in servers:
        server.update({name: tuple(server[name]) for name in ("tools", "problems", "log")})
    return [McpServer(**server) for server in servers]


def _read_change(line: bytes) -> ToolsChanged:
    change = json.loads(line)
    return ToolsChanged(change["server"], tuple(change["tools"]), change["removed"])
