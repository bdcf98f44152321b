"""MCP servers inside a sandbox: what is known of them, and how they are added, removed, listed and followed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sandmesh._calls.runner import EventStream, run_call
from sandmesh._tools import AddMcpServers, ListMcpServers, RemoveMcpServer, Tool, WatchTools, build
from sandmesh.errors import InvalidArgument, WrongState
from sandmesh.events import Output
from sandmesh.results import ToolResult
from sandmesh.sandbox.attachment import Attachment

ServerState = Literal["IDLE", "STARTING", "READY", "FAILED"]


@dataclass(frozen=True, slots=True)
class McpServer:
    """What is known of an MCP server.

    An IDLE one is not running and starts with the next call of a tool of its; so does one that FAILED. `error` says why
    it failed or ended, `problems` what is wrong with one that works, `log` has the last lines of its standard error.
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
    """A server's tools are these now; one that was `removed` has none."""

    server: str
    tools: tuple[str, ...]
    removed: bool = False


async def add_servers(
    attachment: Attachment, config: Mapping[str, Any], overwrite: bool, timeout: float
) -> list[McpServer]:
    """Start servers and say what became of each."""
    if not isinstance(config, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise InvalidArgument(f'config is {{"mcpServers": {{...}}}}, not {config!r}', {"argument": "config"})
    return _read(await _ask(attachment, build(AddMcpServers, dict(config), overwrite), timeout))


async def remove_server(attachment: Attachment, name: str, timeout: float) -> None:
    """End a server."""
    await _ask(attachment, build(RemoveMcpServer, name), timeout)


async def list_servers(attachment: Attachment, timeout: float) -> list[McpServer]:
    """Describe the servers."""
    return _read(await _ask(attachment, ListMcpServers(), timeout))


async def _ask(attachment: Attachment, declared: Tool, timeout: float) -> ToolResult:
    answer = await run_call(attachment.usable().mux, attachment.order(declared, timeout))
    if answer.is_error:
        raise WrongState(str(answer["meta"]["message"]), {"state": "REFUSED"})
    return answer


def _read(answer: ToolResult) -> list[McpServer]:
    servers: list[dict[str, Any]] = (answer.structured or {}).get("servers", [])
    for server in servers:
        server.update({name: tuple(server[name]) for name in ("tools", "problems", "log")})
    return [McpServer(**server) for server in servers]


class ToolChanges(AsyncIterator[ToolsChanged]):
    """The changes of a sandbox's tools, from when the first is asked for until it is closed."""

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
        """Wait for changes and give those there are; an empty list is the end."""
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
        """Follow them no longer."""
        await self._events.aclose()

    async def __aenter__(self) -> ToolChanges:
        """Give itself."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Follow them no longer."""
        await self.aclose()


def _read_change(line: bytes) -> ToolsChanged:
    told = json.loads(line)
    return ToolsChanged(told["server"], tuple(told["tools"]), told["removed"])


def follow_tools(attachment: Attachment) -> ToolChanges:
    """Follow the changes of a sandbox's tools."""
    return ToolChanges(EventStream(lambda: attachment.usable().mux, attachment.order(WatchTools(), 0.0)))
