"""Tools of MCP servers as functions: the servers run inside a sandbox, the functions are called here."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sandmesh._tools.forms import ToolSchema
from sandmesh._tools.model_names import model_names, qualified_names
from sandmesh.errors import InvalidArgument, ToolNotFound, WrongState
from sandmesh.results import ToolResult
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.mcp import McpServer
from sandmesh.sandbox.sync import Sandbox
from sandmesh.toolkits.functions import SandboxTool, new_box, new_box_async

log = logging.getLogger("sandmesh")

Config = Mapping[str, Any]


class McpTool(SandboxTool):
    """A tool of an MCP server, which is started in the tool's sandbox if it does not run there yet."""

    def __init__(self, schema: ToolSchema, server: str, tool: str, config: Config, target: ToolTarget) -> None:
        """Describe a server's tool, and how the server is started."""
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
            if _missing(self._config, box.list_mcp_servers()) is None:
                raise
        _check_started(box.add_mcp_servers(self._config))
        return box.call_tool(self._called, arguments)

    async def _run_async(self, box: SandboxAsync, arguments: dict[str, Any]) -> ToolResult:
        try:
            return await box.call_tool(self._called, arguments)
        except ToolNotFound:
            if _missing(self._config, await box.list_mcp_servers()) is None:
                raise
        _check_started(await box.add_mcp_servers(self._config))
        return await box.call_tool(self._called, arguments)


@dataclass(frozen=True)
class ToolTarget:
    """The sandbox that tools run in: an existing one, or one of a type that is created for each call."""

    sandbox_type: str
    sandbox: Sandbox | SandboxAsync | None = None


@dataclass(frozen=True)
class _Selection:
    """The selection of tools: those on the one list and not on the other."""

    whitelist: Collection[str] | None
    blacklist: Collection[str] | None

    def select(self, tools: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the selected pairs of (server, name).

        Raises:
            InvalidArgument: A list is not one, or names a tool that does not exist.
        """
        whole = {f"{server}.{name}" for server, name in tools}
        for names in (self.whitelist, self.blacklist):
            if isinstance(names, str):
                raise InvalidArgument(f"whitelist and blacklist must be lists of tools' names, not the str {names!r}")
            unknown = set(names or ()) - whole - {name for _, name in tools}
            if unknown:
                there = ", ".join(sorted(whole)) or "none"
                raise InvalidArgument(f"no server has the tool {', '.join(sorted(unknown))}; there are {there}")
        allowed = [tool for tool in tools if self.whitelist is None or _is_in(tool, self.whitelist)]
        return [tool for tool in allowed if not _is_in(tool, self.blacklist or ())]


def _is_in(tool: tuple[str, str], names: Collection[str]) -> bool:
    return tool[1] in names or ".".join(tool) in names


class MCPConfigConverter:
    """Makes functions of the tools of MCP servers, configured as `{"mcpServers": {name: {"command": ...}}}`.

    After a conversion `failed` has the servers that did not start, with the reason; the others' tools are returned.
    """

    def __init__(self, server_configs: Config) -> None:
        """Configure the servers.

        Raises:
            InvalidArgument: It is not a configuration of MCP servers.
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
        """Return the servers' tools, bound to `sandbox` if there is one.

        Without one, a sandbox of `sandbox_type` (by default base) is created to list the tools, and another for each
        call, unless the tool is bound by then or one is passed. The lists have tools, by name or as "server.tool".

        Raises:
            InvalidArgument: The configuration does not fit, or a list names a tool that no server has.
            WrongState: No server started; the message says why.
        """
        if isinstance(sandbox, SandboxAsync):
            raise InvalidArgument("the sandbox is async: await to_builtin_tools_async(...)")
        target = ToolTarget(str(sandbox_type or (sandbox.sandbox_type if sandbox else "base")), sandbox)
        if sandbox is not None:
            return self._tools(self._listed(sandbox), target, _Selection(whitelist, blacklist))
        with new_box(target.sandbox_type) as box:
            return self._tools(self._listed(box), target, _Selection(whitelist, blacklist))

    async def to_builtin_tools_async(
        self,
        sandbox: SandboxAsync | None = None,
        sandbox_type: str | None = None,
        whitelist: Collection[str] | None = None,
        blacklist: Collection[str] | None = None,
    ) -> list[McpTool]:
        """Return the servers' tools as `to_builtin_tools` does, in this event loop."""
        target = ToolTarget(str(sandbox_type or (sandbox.sandbox_type if sandbox else "base")), sandbox)
        if sandbox is not None:
            return self._tools(await self._listed_async(sandbox), target, _Selection(whitelist, blacklist))
        async with new_box_async(target.sandbox_type) as box:
            return self._tools(await self._listed_async(box), target, _Selection(whitelist, blacklist))

    def _listed(self, box: Sandbox) -> dict[str, Any]:
        present = box.list_mcp_servers()
        missing = _missing({"mcpServers": self._servers}, present)
        self._note(box.add_mcp_servers(missing) if missing else present)
        return box.list_tools()

    async def _listed_async(self, box: SandboxAsync) -> dict[str, Any]:
        present = await box.list_mcp_servers()
        missing = _missing({"mcpServers": self._servers}, present)
        self._note(await box.add_mcp_servers(missing) if missing else present)
        return await box.list_tools()

    def _note(self, servers: Iterable[McpServer]) -> None:
        own = [server for server in servers if server.name in self._servers]
        self.failed = {one.name: _reason(one) for one in own if one.state == "FAILED"}
        for name, reason in self.failed.items():
            log.warning("the MCP server %s did not start: %s", name, reason)
        if own and len(self.failed) == len(own):
            _check_started(own)

    def _tools(self, listing: Mapping[str, Any], target: ToolTarget, selection: _Selection) -> list[McpTool]:
        chosen = selection.select([(server, name) for server in self._servers for name in listing.get(server, {})])
        called = qualified_names(chosen)
        names = model_names(called.values())
        return [self._tool(listing[key[0]][key[1]], key[0], names[called[key]], target) for key in chosen]

    def _tool(self, entry: Mapping[str, Any], server: str, name: str, target: ToolTarget) -> McpTool:
        function = entry["json_schema"]["function"]
        schema = ToolSchema(name, function["description"], function["parameters"])
        return McpTool(schema, server, entry["name"], {"mcpServers": {server: self._servers[server]}}, target)


def _read(config: object) -> dict[str, Any]:
    servers: object = cast("Config", config).get("mcpServers") if isinstance(config, Mapping) else None
    if not isinstance(servers, Mapping) or not servers:
        raise InvalidArgument(f'server_configs must be {{"mcpServers": {{name: ...}}}}, not {config!r}')
    return dict(cast("Config", servers))


def _missing(config: Config, present: Iterable[McpServer]) -> dict[str, Any] | None:
    """Return the part of a configuration that a sandbox does not have yet; None if it has all."""
    names = {one.name for one in present}
    missing = {name: server for name, server in config["mcpServers"].items() if name not in names}
    return {"mcpServers": missing} if missing else None


def _reason(server: McpServer) -> str:
    return "; ".join([server.error, *server.log[-3:]])


def _check_started(servers: Iterable[McpServer]) -> None:
    for one in servers:
        if one.state == "FAILED":
            message = f"the MCP server {one.name} did not start: {_reason(one)}"
            raise WrongState(message, {"state": "FAILED", "server": one.name})
