"""One MCP session's server: what its client asks, done in its sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import structlog
from mcp import types
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions

from sandmesh import SandmeshError, __version__
from sandmesh.errors import ToolNotFound
from sandmeshd.facades.mcp.client_messages import ClientMessages, ask_to_allow, elicits
from sandmeshd.facades.mcp.failures import GONE, failed_result, mesh_error, unknown_tool
from sandmeshd.facades.mcp.inner_servers import InnerServers
from sandmeshd.facades.mcp.large_results import SCHEME as RESULTS
from sandmeshd.facades.mcp.large_results import LargeResults
from sandmeshd.facades.mcp.progress import progress_reporter
from sandmeshd.facades.mcp.replies import SessionReplies
from sandmeshd.facades.mcp.resources import SCHEME, TEMPLATE, WorkspaceResources, page
from sandmeshd.facades.mcp.sandbox_tools import NAMES, manage
from sandmeshd.facades.mcp.sandboxes import SessionSandboxes
from sandmeshd.facades.mcp.subscriptions import Subscriptions
from sandmeshd.facades.mcp.tool_list import check_offered, has_output_schema, offered_tools
from sandmeshd.facades.refusals import HostApprovals

log = structlog.get_logger()

Context = ServerRequestContext[Any]


class SessionServer:
    """Answers one MCP client."""

    def __init__(self, sandboxes: SessionSandboxes, largest_message: int = 0) -> None:
        self._sandboxes = sandboxes
        self._large = LargeResults(largest_message)
        self._replies = SessionReplies(sandboxes.settings.reply_characters, self._large)
        self._workspace = WorkspaceResources(sandboxes, self._large.part_bytes)
        self._subscriptions = Subscriptions(self._workspace)
        self._inner = InnerServers(sandboxes, self._large.part_bytes)
        self._approvals = HostApprovals()
        self._tasks: set[asyncio.Task[None]] = set()
        sandboxes.changed = self._lists_changed
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
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        self.server.add_notification_handler("notifications/initialized", types.NotificationParams, self._connected)

    def options(self) -> InitializationOptions:
        """Return the initialization options for the client."""
        changes = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        return self.server.create_initialization_options(changes)

    async def close(self) -> None:
        """Release what this session holds."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._subscriptions.close()
        await self._sandboxes.close()

    async def _connected(self, context: Context, _: types.NotificationParams) -> None:
        self._messages.client = context.session
        self._spawn(self._prepare())

    async def _prepare(self) -> None:
        """Start the mesh, or the sandbox, before it is needed; what fails here is reported by the first call."""
        try:
            await (self._sandboxes.box() if self._sandboxes.settings.eager else self._sandboxes.reach())
        except SandmeshError as error:
            log.warning("the mesh is not ready", reason=error.reason, error=error.message)

    def _lists_changed(self) -> None:
        client = self._messages.client
        if client is not None:
            # Servers come and go with all that they have.
            for send in (
                client.send_tool_list_changed,
                client.send_prompt_list_changed,
                client.send_resource_list_changed,
            ):
                self._spawn(send())

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
            with self._messages.about(context):
                return await self._run(context, called.name, called.arguments or {})
        except ToolNotFound as error:
            raise unknown_tool(error) from None
        except SandmeshError as error:
            return failed_result(error)

    async def _run(self, context: Context, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        if self._sandboxes.settings.manage and name in NAMES:
            return await manage(self._sandboxes, name, arguments)
        await check_offered(self._sandboxes, name)
        bound = self._replies.bound(context.meta)
        box = await self._sandboxes.box()
        try:
            if "progress_token" not in (context.meta or {}):
                result = await box.call_tool(name, arguments)
            else:
                async with progress_reporter(context.session.report_progress) as receive:
                    result = await box.call_tool(name, arguments, receive)
            reply = await self._replies.write(box, result, bound, lambda: has_output_schema(self._sandboxes, name))
        except GONE:
            await self._sandboxes.lost(box)
            raise
        if self._sandboxes.settings.ask and elicits(context.session):
            await _settle(self._approvals, self._sandboxes, box.sandbox_id, context, reply)
        return reply

    async def _list_resources(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        files = await self._workspace.list()
        others = await self._inner.listed("resources/list", "resources", types.Resource)
        return page([*files, *(one for _, one in others)], params.cursor if params else None)

    async def _list_templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        form = types.ResourceTemplate
        others = await self._inner.listed("resources/templates/list", "resourceTemplates", form)
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE, *(one for _, one in others)])

    async def _read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        if uri.startswith(RESULTS):
            return self._large.read(uri)
        if uri.startswith(SCHEME) or not await self._inner.names():
            return await self._workspace.read(uri)
        return await self._inner.of_resource("resources/read", uri, types.ReadResourceResult)

    async def _subscribe(self, context: Context, wanted: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = str(wanted.uri)
        if uri.startswith(SCHEME) or not await self._inner.names():
            await self._subscriptions.add(uri, context.session.send_resource_updated)
        else:
            self._messages.subscribed.add(uri)
            await self._inner.of_resource("resources/subscribe", uri, types.EmptyResult)
        return types.EmptyResult()

    async def _unsubscribe(self, _: Context, wanted: types.UnsubscribeRequestParams) -> types.EmptyResult:
        uri = str(wanted.uri)
        await self._subscriptions.remove(uri)
        if uri in self._messages.subscribed:
            self._messages.subscribed.remove(uri)
            await self._inner.of_resource("resources/unsubscribe", uri, types.EmptyResult)
        return types.EmptyResult()

    async def _list_prompts(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        prompts = await self._inner.prompts()
        return types.ListPromptsResult(
            prompts=[prompt.model_copy(update={"name": name}) for name, (_, prompt) in prompts.items()]
        )

    async def _get_prompt(self, context: Context, wanted: types.GetPromptRequestParams) -> types.GetPromptResult:
        server, own = await self._inner.prompt(wanted.name)
        params = {"name": own, "arguments": wanted.arguments or {}}
        with self._messages.about(context):
            return await self._inner.request(server, "prompts/get", params, types.GetPromptResult)

    async def _complete(self, _: Context, wanted: types.CompleteRequestParams) -> types.CompleteResult:
        return await self._inner.complete(wanted)

    async def _set_level(self, _: Context, wanted: types.SetLevelRequestParams) -> types.EmptyResult:
        self._messages.level = wanted.level
        box = self._sandboxes.current
        if box is not None:
            await self._sandboxes.connections.set_level(box, await self._inner.names())
        return types.EmptyResult()

    @property
    def _messages(self) -> ClientMessages:
        return self._sandboxes.connections.messages


async def _settle(
    approvals: HostApprovals,
    sandboxes: SessionSandboxes,
    sandbox_id: str,
    context: Context,
    reply: types.CallToolResult,
) -> None:
    """Ask about the hosts that the sandbox was refused, and add to the reply what is allowed from now on."""
    ask = partial(ask_to_allow, context.session, context.request_id)
    try:
        async with sandboxes.mesh as mesh:
            allowed = await approvals.settle(mesh, sandbox_id, ask)
    except SandmeshError as error:
        log.warning("a refused host was not allowed", reason=error.reason, error=error.message)
        return
    if allowed:
        said = f"The user allows {', '.join(allowed)} from now on: run again what was refused."
        reply.content.append(types.TextContent(type="text", text=said))


def _instructions(sandboxes: SessionSandboxes) -> str:
    settings = sandboxes.settings
    stays = "It stays when you go." if settings.session else "It ends with this session."
    kind = f"an isolated sandbox of type {settings.sandbox_type!r}"
    return f"The tools run in {kind}, with its own files in /workspace. {stays}"


@asynccontextmanager
async def open_session_server(
    sandboxes: SessionSandboxes, *, largest_message: int = 0
) -> AsyncGenerator[SessionServer]:
    """Open one MCP session's server; at the end of the block its sandbox ends.

    A result over `largest_message` bytes becomes links to its parts; 0: unlimited.
    """
    session = SessionServer(sandboxes, largest_message)
    try:
        yield session
    finally:
        await asyncio.shield(session.close())
