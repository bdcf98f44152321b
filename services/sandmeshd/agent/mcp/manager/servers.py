"""The MCP servers of a sandbox, and the calls that add, remove, list and watch them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sandmesh._tools.mcp import AddMcpServers, ConnectMcp, ListMcpServers, RemoveMcpServer, WatchTools
from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CapabilityMissing, InvalidArgument, ToolNotFound
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.streams import is_stopped, put, unless_stopped
from sandmeshd.agent.mcp.manager.client_process import ClientContext, ClientProcess, start_client_process
from sandmeshd.agent.mcp.manager.clients import McpClients
from sandmeshd.agent.mcp.manager.connection import ConnectedClient, read_capabilities
from sandmeshd.agent.mcp.manager.server import READY, Server
from sandmeshd.agent.processes.spawner import ProcessSpawner
from sandmeshd.contracts.mcp_config import MAX_SERVERS, ServerConfig, read_config, read_template_config

if TYPE_CHECKING:
    from sandmesh._tools import Tool
    from sandmeshd.agent.calls.toolbox import Handler

_MAX_STRUCTURED: Final = 1 << 20
_MAX_NAMES: Final = 256
"""How many tools a change names: it is one event."""


class Servers:
    """All servers. Those of the template exist from the start and run when they are needed."""

    def __init__(
        self, context: ClientContext, template_servers: list[ServerConfig], groups: Sequence[str] = ()
    ) -> None:
        self._context = context
        self._groups = groups
        self._client: asyncio.Task[ClientProcess] | None = None
        self._clients = McpClients()
        self._servers: dict[str, Server] = {config.name: self._create(config) for config in template_servers}
        self._template_servers = list(self._servers.values())
        self._settling: asyncio.Task[None] | None = None
        self._subscribers: set[Callable[[Server, bool], None]] = set()

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        return {
            AddMcpServers: self.add,
            RemoveMcpServer: self.remove,
            ListMcpServers: self.list_all,
            WatchTools: self.watch,
            ConnectMcp: self.connect,
        }

    async def close(self) -> None:
        """End the MCP client process; the servers end with the sandbox."""
        if self._client is not None:
            self._client.cancel()
            await asyncio.wait([self._client])
            if not self._client.cancelled() and self._client.exception() is None:
                self._client.result().end("the sandbox ends")

    # Before a call begins.

    def check_add(self, request: AddMcpServers) -> None:
        """Check that a configuration can be added.

        Raises:
            CapabilityMissing: The sandbox runs no MCP servers.
            InvalidArgument: It is invalid, or a server of a name exists.
        """
        if not self._context.libraries:
            raise CapabilityMissing("sandboxes of this driver run no MCP servers", {"needs": "mcp"})
        names = [config.name for config in read_config(request.config, self._groups)]
        existing = [name for name in names if name in self._servers]
        if existing and not request.overwrite:
            message = f"there is an MCP server named {', '.join(map(repr, existing))} already"
            raise InvalidArgument(f"{message}: choose another name, or pass overwrite", {"servers": ",".join(existing)})
        if len({*self._servers, *names}) > MAX_SERVERS:
            raise InvalidArgument(f"a sandbox has at most {MAX_SERVERS} MCP servers: remove some")

    def check_remove(self, request: RemoveMcpServer) -> None:
        """Check that a server of a name exists.

        Raises:
            InvalidArgument: There is no such server.
        """
        if request.server not in self._servers:
            known = ", ".join(map(repr, self._servers)) or "none"
            raise InvalidArgument(f"there is no MCP server {request.server!r}: there are {known}", {"known": known})

    # The calls.

    async def add(self, request: AddMcpServers, call: RunningCall) -> Outcome:
        """Add servers and wait until each is ready or failed."""
        call.started()
        configs = read_config(request.config, self._groups)
        replaced = [self._servers[config.name] for config in configs if config.name in self._servers]
        added = [self._create(config) for config in configs]
        self._servers.update({server.config.name: server for server in added})
        await asyncio.gather(*(server.remove() for server in replaced))
        try:
            await unless_stopped(call, _settled(added))
        except CallStopped:
            return Outcome(True, call.stop_reason or pb.END_REASON_CANCELLED, message="The servers still start.")
        return await _describe_all(call, added)

    async def remove(self, request: RemoveMcpServer, call: RunningCall) -> Outcome:
        """End a server."""
        call.started()
        server = self._servers.pop(request.server, None)
        if server is None:
            raise ToolFailure(f"There is no MCP server {request.server!r}.")
        await server.remove()
        self._notify(server, removed=True)
        return Outcome()

    async def list_all(self, _: ListMcpServers, call: RunningCall) -> Outcome:
        """Describe the servers by name."""
        call.started()
        return await _describe_all(call, [server for _, server in sorted(self._servers.items())])

    async def watch(self, _: WatchTools, call: RunningCall) -> Outcome:
        """Send the current servers, then each change, until the call is stopped."""
        changes: asyncio.Queue[bytes] = asyncio.Queue(256)

        def notify(server: Server, removed: bool) -> None:
            if not changes.full():
                changes.put_nowait(_change(server, removed))

        call.started()
        self._subscribers.add(notify)
        try:
            for server in self._servers.values():
                notify(server, False)
            while not is_stopped(call):
                await put(call, await unless_stopped(call, changes.get()))
        except CallStopped:
            pass
        finally:
            self._subscribers.discard(notify)
        return Outcome(reason=call.stop_reason or pb.END_REASON_CANCELLED)

    async def connect(self, request: ConnectMcp, call: RunningCall) -> Outcome:
        """Connect a client to the servers, until it ends its input."""
        if call.input is None:
            raise InvalidArgument("a client's messages come as input: start the call with takes_input")
        connection = ConnectedClient(call, call.input, self._clients, read_capabilities(request.capabilities))
        call.started()
        return await connection.run(self._servers.get)

    # The tools.

    def find(self, name: str) -> Handler | None:
        """Return what runs a tool, by its own name or as `server.tool`; its declaration is the arguments as they came.

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
        owners = [server for server in self._servers.values() if name in server.status.tools]
        if len(owners) > 1:
            known = ",".join(f"{server.config.name}.{name}" for server in owners)
            raise ToolNotFound(f"several servers have a tool {name!r}: call it as one of {known}", {"known": known})
        return partial(_call, owners[0], name) if owners else None

    def known(self) -> list[str]:
        """Return the names of all tools of servers."""
        return [f"{name}.{tool}" for name, server in self._servers.items() for tool in server.status.tools]

    async def _call_settled(self, name: str, arguments: bytes, call: RunningCall) -> Outcome:
        """Call a tool that may belong to a server that was never started."""
        with suppress(CallStopped):
            await unless_stopped(call, self.settled())
        try:
            handler = self._find_settled(name)
        except ToolNotFound as error:
            raise ToolFailure(f"{error}.") from None
        if handler is None:
            raise ToolFailure(f"The sandbox has no tool {name!r}; of MCP servers it has {', '.join(self.known())}.")
        return await handler(arguments, call)

    async def settled(self) -> None:
        """Start the servers of the template, and wait until each is ready or failed."""
        if self._settling is None:
            self._settling = asyncio.create_task(_settled(self._template_servers))
        await asyncio.shield(self._settling)

    @property
    def unsettled(self) -> bool:
        """Whether some servers of the template were never started."""
        return bool(self._template_servers) and (self._settling is None or not self._settling.done())

    def listing(self, group: str) -> list[pb.Tool]:
        """Describe the tools of a server, or of all for the empty name."""
        servers = [server for name, server in sorted(self._servers.items()) if group in ("", name)]
        return [
            _describe(server.config.name, tool) for server in servers for _, tool in sorted(server.status.tools.items())
        ]

    def _create(self, config: ServerConfig) -> Server:
        notify = partial(self._notify, removed=False)
        return Server(config, self._context, self._running_client, notify, self._clients)

    def _notify(self, server: Server, removed: bool) -> None:
        for notify in self._subscribers:
            notify(server, removed)

    async def _running_client(self) -> ClientProcess:
        """Return the MCP client process, started where none runs."""
        task = self._client
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().alive)):
            task = self._client = asyncio.create_task(start_client_process(self._context))
        return await asyncio.shield(task)


def make_servers(processes: ProcessSpawner, config: agent_pb2.AgentConfig) -> Servers:
    """Create the servers of a sandbox, which has those of its template at first."""
    context = ClientContext(processes, list(config.mcp_libraries), dict(config.environment), config.workspace)
    groups = list(config.tool_groups)
    return Servers(context, read_template_config(config.mcp_config, groups), groups)


async def _call(server: Server, tool: str, arguments: bytes, call: RunningCall) -> Outcome:
    return await server.call(tool, arguments, call)


async def _settled(servers: list[Server]) -> None:
    await asyncio.gather(*(server.ready() for server in servers), return_exceptions=True)


async def _describe_all(call: RunningCall, servers: list[Server]) -> Outcome:
    described = [server.describe() for server in servers]
    for server in described:
        summary = f"{len(server['tools'])} tools" if server["state"] == READY else server["error"]
        await call.text(f"{server['name']}: {server['state']}{', ' if summary else ''}{summary}\n", "stdout")
    while len(structured := json.dumps({"servers": described}).encode()) > _MAX_STRUCTURED:
        longest = max(described, key=lambda server: len(server["tools"]))
        longest["tools"] = longest["tools"][: len(longest["tools"]) // 2]
        longest["problems"] = ["not all of its tools are named here: list_tools does", *longest["problems"][:10]]
    return Outcome(structured=structured)


def _change(server: Server, removed: bool) -> bytes:
    change = {"server": server.config.name, "tools": list(server.status.tools)[:_MAX_NAMES], "removed": removed}
    return json.dumps(change).encode() + b"\n"


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
