"""Tools of MCP servers as functions: the servers run inside a sandbox, the functions are called here."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sandmesh._tools.forms import ToolSchema
from sandmesh.errors import InvalidArgument, ToolNotFound, WrongState
from sandmesh.results import ToolResult
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.mcp import McpServer
from sandmesh.sandbox.sync import Sandbox
from sandmesh.toolkits.functions import SandboxTool, new_box, new_box_async

log = logging.getLogger("sandmesh")

Config = Mapping[str, Any]


class McpTool(SandboxTool):
    """A tool of an MCP server, which is started in the tool's sandbox target it does not run there yet."""

    def __init__(self, schema: ToolSchema, server: str, tool: str, config: Config, target: ToolTarget) -> None:
        """Say which tool of which server it is, and how that server is started."""
        super().__init__(schema, tool_type=server, sandbox_type=target.sandbox_type, sandbox=target.sandbox)
        self._called = f"{server}.{tool}"
        self._config = config

    @property
    def server(self) -> str:
        """The server's name."""
        return self.tool_type

    def _run(self, box: Sandbox, arguments: dict[str, Any]) -> ToolResult:
        try:
            return box.call_tool(self._called, arguments)
        except ToolNotFound:
            if _lacking(self._config, box.list_mcp_servers()) is None:
                raise
        _check_started(box.add_mcp_servers(self._config))
        return box.call_tool(self._called, arguments)

    async def _run_async(self, box: SandboxAsync, arguments: dict[str, Any]) -> ToolResult:
        try:
            return await box.call_tool(self._called, arguments)
        except ToolNotFound:
            if _lacking(self._config, await box.list_mcp_servers()) is None:
                raise
        _check_started(await box.add_mcp_servers(self._config))
        return await box.call_tool(self._called, arguments)


@dataclass(frozen=True)
class ToolTarget:
    """Which sandbox tools run in: one that is there, or one of a type that is made for each call."""

    sandbox_type: str
    sandbox: Sandbox | SandboxAsync | None = None


@dataclass(frozen=True)
class _Chosen:
    """Which tools are wanted: those of the one list and not of the other."""

    whitelist: Collection[str] | None
    blacklist: Collection[str] | None

    def of(self, tools: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Give those of (server, name) that are wanted.

        Raises:
            InvalidArgument: A list is none, or names a tool that is not there.
        """
        whole = {f"{server}.{name}" for server, name in tools}
        for stated in (self.whitelist, self.blacklist):
            if isinstance(stated, str):
                raise InvalidArgument(f"whitelist and blacklist are lists of tools' names, not the text {stated!r}")
            unknown = set(stated or ()) - whole - {name for _, name in tools}
            if unknown:
                there = ", ".join(sorted(whole)) or "none"
                raise InvalidArgument(f"no server has the tool {', '.join(sorted(unknown))}; there are {there}")
        wanted = [one for one in tools if self.whitelist is None or _is_in(one, self.whitelist)]
        return [one for one in wanted if not _is_in(one, self.blacklist or ())]


def _is_in(tool: tuple[str, str], stated: Collection[str]) -> bool:
    return tool[1] in stated or ".".join(tool) in stated


class MCPConfigConverter:
    """Makes functions of the tools of MCP servers, as `{"mcpServers": {name: {"command": ...}}}` says them.

    After a conversion `failed` has the servers that did not start, with the reason; the others' tools are there.
    """

    def __init__(self, server_configs: Config) -> None:
        """Say which servers.

        Raises:
            InvalidArgument: It is no configuration of MCP servers.
        """
        self._servers = _read(server_configs)
        self.failed: dict[str, str] = {}

    def to_builtin_tools(
        self,
        sandbox: Sandbox | None = None,
        sandbox_type: str | None = None,
        whitelist: Collection[str] | None = None,
        blacklist: Collection[str] | None = None,
    ) -> list[McpTool]:
        """Give the servers' tools, bound to the sandbox target one is given.

        Without one a sandbox of `sandbox_type` (by default base) is made to ask the servers in, and another for each
        call, unless the tool is bound or given one then. The lists name tools, by name or as "server.tool".

        Raises:
            InvalidArgument: The configuration does not fit, or a list names a tool that no server has.
            WrongState: No server started; the message says why.
        """
        if isinstance(sandbox, SandboxAsync):
            raise InvalidArgument("the sandbox is an async one: await to_builtin_tools_async(...)")
        target = ToolTarget(str(sandbox_type or (sandbox.sandbox_type if sandbox else "base")), sandbox)
        if sandbox is not None:
            return self._tools(self._listed(sandbox), target, _Chosen(whitelist, blacklist))
        with new_box(target.sandbox_type) as box:
            return self._tools(self._listed(box), target, _Chosen(whitelist, blacklist))

    async def to_builtin_tools_async(
        self,
        sandbox: SandboxAsync | None = None,
        sandbox_type: str | None = None,
        whitelist: Collection[str] | None = None,
        blacklist: Collection[str] | None = None,
    ) -> list[McpTool]:
        """Do what `to_builtin_tools` does, in this event loop."""
        target = ToolTarget(str(sandbox_type or (sandbox.sandbox_type if sandbox else "base")), sandbox)
        if sandbox is not None:
            return self._tools(await self._listed_async(sandbox), target, _Chosen(whitelist, blacklist))
        async with new_box_async(target.sandbox_type) as box:
            return self._tools(await self._listed_async(box), target, _Chosen(whitelist, blacklist))

    def _listed(self, box: Sandbox) -> dict[str, Any]:
        there = box.list_mcp_servers()
        lacking = _lacking({"mcpServers": self._servers}, there)
        self._note(box.add_mcp_servers(lacking) if lacking else there)
        return box.list_tools()

    async def _listed_async(self, box: SandboxAsync) -> dict[str, Any]:
        there = await box.list_mcp_servers()
        lacking = _lacking({"mcpServers": self._servers}, there)
        self._note(await box.add_mcp_servers(lacking) if lacking else there)
        return await box.list_tools()

    def _note(self, servers: Iterable[McpServer]) -> None:
        own = [one for one in servers if one.name in self._servers]
        self.failed = {one.name: _reason(one) for one in own if one.state == "FAILED"}
        for name, reason in self.failed.items():
            log.warning("the MCP server %s did not start: %s", name, reason)
        if own and len(self.failed) == len(own):
            _check_started(own)

    def _tools(self, listing: Mapping[str, Any], target: ToolTarget, wanted: _Chosen) -> list[McpTool]:
        chosen = wanted.of([(server, name) for server in self._servers for name in listing.get(server, {})])
        times = Counter(name for _, name in chosen)
        return [
            self._tool(listing[server][name], server, f"{server}.{name}" if times[name] > 1 else name, target)
            for server, name in chosen
        ]

    def _tool(self, entry: Mapping[str, Any], server: str, name: str, target: ToolTarget) -> McpTool:
        function = entry["json_schema"]["function"]
        schema = ToolSchema(name, function["description"], function["parameters"])
        return McpTool(schema, server, entry["name"], {"mcpServers": {server: self._servers[server]}}, target)


def _read(config: object) -> dict[str, Any]:
    servers: object = cast("Config", config).get("mcpServers") if isinstance(config, Mapping) else None
    if not isinstance(servers, Mapping) or not servers:
        raise InvalidArgument(f'server_configs is {{"mcpServers": {{name: ...}}}}, not {config!r}')
    return dict(cast("Config", servers))


def _lacking(config: Config, there: Iterable[McpServer]) -> dict[str, Any] | None:
    """Give the part of a configuration that a sandbox does not have; None target it has all."""
    names = {one.name for one in there}
    lacking = {name: told for name, told in config["mcpServers"].items() if name not in names}
    return {"mcpServers": lacking} if lacking else None


def _reason(server: McpServer) -> str:
    return "; ".join([server.error, *server.log[-3:]])


def _check_started(servers: Iterable[McpServer]) -> None:
    for one in servers:
        if one.state == "FAILED":
            message = f"the MCP server {one.name} did not start: {_reason(one)}"
            raise WrongState(message, {"state": "FAILED", "server": one.name})
