"""One MCP session's server: what its client asks, done in its sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from mcp import types
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession

from sandmesh import SandmeshError, __version__
from sandmesh.errors import ToolNotFound
from sandmeshd.facades.mcp.failures import GONE, failed_result, mesh_error, unknown_tool
from sandmeshd.facades.mcp.large_results import SCHEME as RESULTS
from sandmeshd.facades.mcp.large_results import LargeResults
from sandmeshd.facades.mcp.progress import progress_reporter
from sandmeshd.facades.mcp.resources import Workspace, templates
from sandmeshd.facades.mcp.results import write_result
from sandmeshd.facades.mcp.sandbox_tools import NAMES, manage
from sandmeshd.facades.mcp.sandboxes import SessionSandboxes
from sandmeshd.facades.mcp.subscriptions import Subscriptions
from sandmeshd.facades.mcp.tool_list import check_offered, offered_tools

log = structlog.get_logger()

Context = ServerRequestContext[Any]


class SessionServer:
    """Answers one MCP client."""

    def __init__(self, sandboxes: SessionSandboxes, largest_message: int = 0) -> None:
        self._sandboxes = sandboxes
        self._large = LargeResults(largest_message)
        self._workspace = Workspace(sandboxes, self._large.part_bytes)
        self._subscriptions = Subscriptions(self._workspace)
        self._client: ServerSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        sandboxes.changed = self._tools_changed
        self.server: Server[Any] = Server(
            "sandmesh",
            version=__version__,
            title="sandmesh",
            instructions=_instructions(sandboxes),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
            on_list_resource_templates=self._list_templates,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
        )
        self.server.add_notification_handler("notifications/initialized", types.NotificationParams, self._connected)

    def options(self) -> InitializationOptions:
        """Return the initialization options for the client."""
        return self.server.create_initialization_options(NotificationOptions(tools_changed=True))

    async def close(self) -> None:
        """Release what this session holds."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._subscriptions.close()
        await self._sandboxes.close()

    async def _connected(self, context: Context, _: types.NotificationParams) -> None:
        self._client = context.session
        self._spawn(self._prepare())

    async def _prepare(self) -> None:
        """Start the mesh, or the sandbox, before it is needed; what fails here is reported by the first call."""
        try:
            await (self._sandboxes.box() if self._sandboxes.settings.eager else self._sandboxes.reach())
        except SandmeshError as error:
            log.warning("the mesh is not ready", reason=error.reason, error=error.message)

    def _tools_changed(self) -> None:
        if self._client is not None:
            self._spawn(self._client.send_tool_list_changed())

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _list_tools(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        try:
            return types.ListToolsResult(tools=await offered_tools(self._sandboxes))
        except SandmeshError as error:
            raise mesh_error(error) from None

    async def _call_tool(self, context: Context, called: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return await self._run(context, called.name, called.arguments or {})
        except ToolNotFound as error:
            raise unknown_tool(error) from None
        except SandmeshError as error:
            return failed_result(error)

    async def _run(self, context: Context, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        if self._sandboxes.settings.manage and name in NAMES:
            return await manage(self._sandboxes, name, arguments)
        check_offered(name)
        box = await self._sandboxes.box()
        try:
            if "progress_token" not in (context.meta or {}):
                return self._large.shorten(write_result(await box.call_tool(name, arguments)))
            async with progress_reporter(context.session.report_progress) as receive:
                return self._large.shorten(write_result(await box.call_tool(name, arguments, receive)))
        except GONE:
            await self._sandboxes.lost(box)
            raise

    async def _list_resources(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return await self._workspace.list(params.cursor if params else None)

    async def _list_templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return templates()

    async def _read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        return self._large.read(uri) if uri.startswith(RESULTS) else await self._workspace.read(uri)

    async def _subscribe(self, context: Context, wanted: types.SubscribeRequestParams) -> types.EmptyResult:
        await self._subscriptions.add(str(wanted.uri), context.session.send_resource_updated)
        return types.EmptyResult()

    async def _unsubscribe(self, _: Context, wanted: types.UnsubscribeRequestParams) -> types.EmptyResult:
        await self._subscriptions.remove(str(wanted.uri))
        return types.EmptyResult()


def _instructions(sandboxes: SessionSandboxes) -> str:
    settings = sandboxes.settings
    stays = "It stays when you go." if settings.session else "It ends with this session."
    kind = f"an isolated sandbox of type {settings.sandbox_type!r}"
    return f"The tools run in {kind}, with files of its own in /workspace. {stays}"


@asynccontextmanager
async def open_session_server(
    sandboxes: SessionSandboxes, *, largest_message: int = 0
) -> AsyncGenerator[SessionServer]:
    """Open one MCP session's server; at the end of the block its sandbox ends.

    A result over `largest_message` bytes becomes links to its parts; 0 is no bound.
    """
    session = SessionServer(sandboxes, largest_message)
    try:
        yield session
    finally:
        await asyncio.shield(session.close())
