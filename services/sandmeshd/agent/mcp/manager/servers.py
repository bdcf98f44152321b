"""The MCP servers of a sandbox, and the calls that add, remove, list and follow them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CapabilityMissing, InvalidArgument, ToolNotFound
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Call, Outcome
from sandmeshd.agent.files.failures import Cut
from sandmeshd.agent.files.streams import is_cut, put, unless_cut
from sandmeshd.agent.mcp.manager.config import MOST_SERVERS, ServerConfig, read_config, read_shipped
from sandmeshd.agent.mcp.manager.host import Home, Host, open_host
from sandmeshd.agent.mcp.manager.server import READY, Server
from sandmeshd.agent.processes.spawner import Processes

if TYPE_CHECKING:
    from sandmesh._tools import AddMcpServers, ListMcpServers, RemoveMcpServer, WatchTools
    from sandmeshd.agent.calls.toolbox import Handler

_MOST_TOLD: Final = 1 << 20
_MOST_NAMED: Final = 256
"""How many tools a change names: it is one event."""


class Servers:
    """All of them. Those that the template has are there from the start and run when they are needed."""

    def __init__(self, home: Home, shipped: list[ServerConfig]) -> None:
        self._home = home
        self._host: asyncio.Task[Host] | None = None
        self._servers: dict[str, Server] = {config.name: self._made(config) for config in shipped}
        self._shipped = list(self._servers.values())
        self._settling: asyncio.Task[None] | None = None
        self._watching: set[Callable[[Server, bool], None]] = set()

    async def close(self) -> None:
        """End the host; the servers end with the sandbox."""
        if self._host is not None:
            self._host.cancel()
            await asyncio.wait([self._host])
            if not self._host.cancelled() and self._host.exception() is None:
                self._host.result().end("the sandbox ends")

    # Before a call begins.

    def check_add(self, asked: AddMcpServers) -> None:
        """Let a configuration pass that can be added.

        Raises:
            CapabilityMissing: The sandbox runs no MCP servers.
            InvalidArgument: It does not fit, or a server is there already.
        """
        if not self._home.libraries:
            raise CapabilityMissing("sandboxes of this driver run no MCP servers", {"needs": "mcp"})
        names = [config.name for config in read_config(asked.config)]
        there = [name for name in names if name in self._servers]
        if there and not asked.overwrite:
            told = f"there is an MCP server of the name {', '.join(map(repr, there))} already"
            raise InvalidArgument(f"{told}: choose another name, or say overwrite", {"servers": ",".join(there)})
        if len({*self._servers, *names}) > MOST_SERVERS:
            raise InvalidArgument(f"a sandbox has at most {MOST_SERVERS} MCP servers: remove some")

    def check_remove(self, asked: RemoveMcpServer) -> None:
        """Let a name pass that is there.

        Raises:
            InvalidArgument: There is no such server.
        """
        if asked.server not in self._servers:
            known = ", ".join(map(repr, self._servers)) or "none"
            raise InvalidArgument(f"there is no MCP server {asked.server!r}: there are {known}", {"known": known})

    # The calls.

    async def add(self, asked: AddMcpServers, call: Call) -> Outcome:
        """Add servers and wait until each is ready or failed."""
        call.started()
        configs = read_config(asked.config)
        replaced = [self._servers[config.name] for config in configs if config.name in self._servers]
        added = [self._made(config) for config in configs]
        self._servers.update({server.config.name: server for server in added})
        await asyncio.gather(*(server.remove() for server in replaced))
        try:
            await unless_cut(call, _settled(added))
        except Cut:
            return Outcome(True, call.stop_reason or pb.END_REASON_CANCELLED, message="The servers still start.")
        return await _told(call, added)

    async def remove(self, asked: RemoveMcpServer, call: Call) -> Outcome:
        """End a server."""
        call.started()
        server = self._servers.pop(asked.server, None)
        if server is None:
            raise ToolFailure(f"There is no MCP server {asked.server!r}.")
        await server.remove()
        self._tell(server, removed=True)
        return Outcome()

    async def list_all(self, _: ListMcpServers, call: Call) -> Outcome:
        """Describe the servers by name."""
        call.started()
        return await _told(call, [server for _, server in sorted(self._servers.items())])

    async def watch(self, _: WatchTools, call: Call) -> Outcome:
        """Tell of changes until the call is stopped; first of what there is."""
        news: asyncio.Queue[bytes] = asyncio.Queue(256)

        def hear(server: Server, removed: bool) -> None:
            if not news.full():
                news.put_nowait(_change(server, removed))

        call.started()
        self._watching.add(hear)
        try:
            for server in self._servers.values():
                hear(server, False)
            while not is_cut(call):
                await put(call, await unless_cut(call, news.get()))
        except Cut:
            pass
        finally:
            self._watching.discard(hear)
        return Outcome(reason=call.stop_reason or pb.END_REASON_CANCELLED)

    # The tools.

    def find(self, name: str) -> Handler | None:
        """Give what runs a tool, by its own name or as `server.tool`; its declaration is the arguments as they came.

        Raises:
            ToolNotFound: Several servers have one of that name.
        """
        head, dot, tail = name.partition(".")
        if dot and head in self._servers:
            return partial(_call, self._servers[head], tail)
        if self.unsettled:
            return partial(self._call_settled, name)
        return self._find_settled(name)

    def _find_settled(self, name: str) -> Handler | None:
        having = [server for server in self._servers.values() if name in server.told.tools]
        if len(having) > 1:
            known = ",".join(f"{server.config.name}.{name}" for server in having)
            raise ToolNotFound(f"several servers have a tool {name!r}: call it as one of {known}", {"known": known})
        return partial(_call, having[0], name) if having else None

    def known(self) -> list[str]:
        """Give the names that all tools of servers have."""
        return [f"{name}.{tool}" for name, server in self._servers.items() for tool in server.told.tools]

    async def _call_settled(self, name: str, arguments: bytes, call: Call) -> Outcome:
        """Run a tool that may be one of a server that was never started."""
        with suppress(Cut):
            await unless_cut(call, self.settled())
        try:
            handler = self._find_settled(name)
        except ToolNotFound as error:
            raise ToolFailure(f"{error}.") from None
        if handler is None:
            raise ToolFailure(f"The sandbox has no tool {name!r}; of MCP servers it has {', '.join(self.known())}.")
        return await handler(arguments, call)

    async def settled(self) -> None:
        """Start the servers that the template has, and wait until each is ready or failed."""
        if self._settling is None:
            self._settling = asyncio.create_task(_settled(self._shipped))
        await asyncio.shield(self._settling)

    @property
    def unsettled(self) -> bool:
        """Whether the servers that the template has were never all started."""
        return bool(self._shipped) and (self._settling is None or not self._settling.done())

    def listing(self, group: str) -> list[pb.Tool]:
        """Describe the tools of a server, or of all for the empty name."""
        servers = [server for name, server in sorted(self._servers.items()) if group in ("", name)]
        return [
            _describe(server.config.name, tool) for server in servers for _, tool in sorted(server.told.tools.items())
        ]

    def _made(self, config: ServerConfig) -> Server:
        return Server(config, self._home, self._running_host, partial(self._tell, removed=False))

    def _tell(self, server: Server, removed: bool) -> None:
        for hear in self._watching:
            hear(server, removed)

    async def _running_host(self) -> Host:
        """Give the host, started where none runs."""
        task = self._host
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().alive)):
            task = self._host = asyncio.create_task(open_host(self._home))
        return await asyncio.shield(task)


def make_servers(processes: Processes, config: agent_pb2.AgentConfig) -> Servers:
    """Give the servers of a sandbox: at first those of its template."""
    home = Home(processes, list(config.mcp_libraries), dict(config.environment), config.workspace)
    return Servers(home, read_shipped(config.mcp_config))


async def _call(server: Server, tool: str, arguments: bytes, call: Call) -> Outcome:
    return await server.call(tool, arguments, call)


async def _settled(servers: list[Server]) -> None:
    await asyncio.gather(*(server.ready() for server in servers), return_exceptions=True)


async def _told(call: Call, servers: list[Server]) -> Outcome:
    told = [server.describe() for server in servers]
    for server in told:
        summary = f"{len(server['tools'])} tools" if server["state"] == READY else server["error"]
        await call.text(f"{server['name']}: {server['state']}{', ' if summary else ''}{summary}\n", "stdout")
    while len(structured := json.dumps({"servers": told}).encode()) > _MOST_TOLD:
        longest = max(told, key=lambda server: len(server["tools"]))
        longest["tools"] = longest["tools"][: len(longest["tools"]) // 2]
        longest["problems"] = ["not all of its tools are named here: list_tools does", *longest["problems"][:10]]
    return Outcome(structured=structured)


def _change(server: Server, removed: bool) -> bytes:
    told = {"server": server.config.name, "tools": list(server.told.tools)[:_MOST_NAMED], "removed": removed}
    return json.dumps(told).encode() + b"\n"


def _describe(group: str, tool: Mapping[str, Any]) -> pb.Tool:
    described = pb.Tool(
        name=tool["name"],
        group=group,
        description=str(tool.get("description", "")),
        input_schema_json=json.dumps(tool["inputSchema"]).encode(),
        title=str(tool.get("title", "")),
    )
    if isinstance(tool.get("outputSchema"), dict):
        described.output_schema_json = json.dumps(tool["outputSchema"]).encode()
    if isinstance(tool.get("annotations"), dict):
        described.annotations_json = json.dumps(tool["annotations"]).encode()
    return described
