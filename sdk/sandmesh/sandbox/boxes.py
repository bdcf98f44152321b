"""Sandboxes for programs with an event loop. The sync ones in `sandmesh.sandbox.sync` are made of these."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from inspect import signature
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, Unpack, cast

from sandmesh._calls.call import Order
from sandmesh._calls.multiplexer import CallMux
from sandmesh._calls.runner import EventStream, HeardCollector, run_call
from sandmesh._client.messages import (
    check_options,
    read_event,
    read_name,
    read_record,
    read_seconds,
    read_tools,
    write_arguments,
    write_spec,
    write_ttl,
)
from sandmesh._files.api import FilesAsync
from sandmesh._tools import (
    TOOLS,
    CommitChanges,
    CreateDirectory,
    DirectoryTree,
    EditFile,
    GenerateDiff,
    GetFileInfo,
    GitLogs,
    ListAllowedDirectories,
    ListDirectory,
    MoveFile,
    ReadFile,
    ReadMultipleFiles,
    RunIpythonCell,
    RunShellCommand,
    SearchFiles,
    Tool,
    WriteFile,
    build,
    description,
    dump,
)
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import WrongState
from sandmesh.events import CallEvent
from sandmesh.inputs import Options
from sandmesh.results import ToolResult
from sandmesh.sandbox.attachment import Attachment, Wanted, attach, get_record, renew
from sandmesh.sandbox.held_session import Times
from sandmesh.sandbox.kernels import KernelsAsync
from sandmesh.sandbox.mcp import McpServer, ToolChanges, add_servers, follow_tools, list_servers, remove_server
from sandmesh.sandbox.ports import ExposedPortAsync, Where, expose, list_exposed
from sandmesh.sandbox.processes import ProcessesAsync
from sandmesh.sandbox.registered_classes import registered
from sandmesh.sandbox.snapshots import SnapshotsAsync
from sandmesh.sandbox.states import StatesAsync
from sandmesh.sandbox.toolkit import ToolkitAsync

P = ParamSpec("P")

# What a collected result may hold; `stream` has no such bound.
OUTPUT_LIMIT = 64 * 1024 * 1024


class SandboxAsync(StatesAsync, SnapshotsAsync):
    """One sandbox of any type: `async with SandboxAsync(sandbox_type="base") as box: ...`.

    Without `sandbox_id` it makes a sandbox and gives it back when it is closed; with one it attaches to that sandbox,
    which stays. `timeout` is seconds for each operation. Without `base_url` the mesh is the one at SANDMESH_ADDRESS,
    else this user's local one, else a private one that ends with this process.
    """

    default_type: ClassVar[str] = "base"

    def __init__(
        self,
        sandbox_id: str | None = None,
        timeout: float = 3000,
        base_url: str | None = None,
        bearer_token: str | None = None,
        sandbox_type: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Say what is wanted; nothing is made before `start`.

        Raises:
            InvalidArgument: A value does not fit.
        """
        check_options(options)
        self._type = read_name("sandbox_type", sandbox_type or registered().type_of(type(self)) or self.default_type)
        write_ttl(options.get("ttl"))
        write_ttl(options.get("idle_timeout"), "idle_timeout")
        self._wanted = Wanted(
            sandbox_id=None if sandbox_id is None else read_name("sandbox_id", sandbox_id),
            timeout=read_seconds("timeout", timeout),
            base_url=base_url,
            bearer_token=bearer_token,
            spec=write_spec(self._type, options),
            times=Times(options.get("ttl"), options.get("idle_timeout")),
            ca_cert=options.get("ca_cert"),
        )
        self._attachment: Attachment | None = None
        self._closed = False

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id.

        Raises:
            WrongState: It has none yet: the box was not started.
        """
        if self._wanted.sandbox_id is not None:
            return self._wanted.sandbox_id
        attachment = self._attachment or self._attached()
        return attachment.record.sandbox_id

    @property
    def sandbox_type(self) -> str:
        """The sandbox's type; of one that was attached to, its template once the box is open."""
        if self._wanted.sandbox_id is not None and self._attachment is not None:
            return self._attachment.record.spec.template
        return self._type

    @property
    def is_open(self) -> bool:
        """Whether it was started and not closed."""
        return self._attachment is not None

    @property
    def kernels(self) -> KernelsAsync:
        """The sandbox's kernels: create, get, list."""
        return KernelsAsync(self._attached, self._wanted.timeout)

    @property
    def processes(self) -> ProcessesAsync:
        """The sandbox's processes: start, list, attach."""
        return ProcessesAsync(self._attached, self._wanted.timeout)

    async def start(self) -> Self:
        """Make the sandbox or attach to it; a box that is open stays as it is.

        Raises:
            WrongState: The box was closed.
            SandmeshError: The sandbox could not be had; nothing is left behind.
        """
        if self._closed:
            raise WrongState("this box was closed: make a new one", {"state": "CLOSED"})
        if self._attachment is None:
            self._attachment = await attach(self._wanted)
        return self

    async def close(self) -> None:
        """Give the sandbox back if this box made it; closing twice changes nothing."""
        self._closed = True
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            await attachment.close(self._wanted.timeout)

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(self, *_exc: object) -> None:
        """Close."""
        await self.close()

    async def get_info(self) -> dict[str, Any]:
        """Give the sandbox's record as plain JSON: state, spec, lease, driver, what is enforced.

        Raises:
            SandboxNotFound: It is gone.
        """
        attachment = self._attached()
        record = await get_record(attachment.usable(), attachment.record.sandbox_id, self._wanted.timeout)
        return read_record(record)

    async def renew(self, ttl: float | None = None) -> None:
        """Let the sandbox live for so many seconds from now; None is the mesh's own time.

        A box that made its sandbox renews it by itself while it is open, by this time from now on.

        Raises:
            LeaseLost: Its lease ran out, or it was given back.
        """
        attachment = self._attached()
        await renew(attachment, ttl, self._wanted.timeout)

    async def list_events(self) -> list[dict[str, str]]:
        """Give what happened to the sandbox, oldest first, as plain JSON: time, kind, reason, actor."""
        attachment = self._attached()
        request = sandbox_pb2.ListEventsRequest(sandbox_id=attachment.record.sandbox_id, page_size=1000)
        asked = attachment.usable().ask(lambda stubs: stubs.sandboxes.ListEvents, request, self._wanted.timeout)
        return [read_event(event) for event in (await asked).events]

    async def list_tools(self, tool_type: str | None = None) -> dict[str, Any]:
        """Give what the sandbox can do now, as plain JSON.

        The form is {group: {name: {"name": ..., "json_schema": {"type": "function", "function": {...}}}}};
        `tool_type` narrows it to one group. A group is "generic", "filesystem", or the name of an MCP server, whose
        tools also have what it says of them: "title", "annotations", "output_schema".
        """
        attachment = self._attached()
        request = call_pb2.ListToolsRequest(
            sandbox_id=attachment.record.sandbox_id,
            group=tool_type or "",
            fencing_token=attachment.record.lease.fencing_token,
        )
        timeout = self._wanted.timeout
        return read_tools(await attachment.usable().ask(lambda stubs: stubs.calls.ListTools, request, timeout))

    async def as_tools(self, form: str = "openai") -> ToolkitAsync:
        """Give all tools as a model is told of them, with what runs its calls: "openai", "anthropic" or "mcp"."""
        return ToolkitAsync(self, form, await self.list_tools())

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        on_event: Callable[[CallEvent], None] | None = None,
    ) -> ToolResult:
        """Run any tool of the sandbox by name, those too that only the sandbox knows.

        A tool of an MCP server has the name that the server gives it, or "server.tool", which it always has. What an
        MCP server says against the arguments is a result with `is_error`.

        `on_event` hears each event as it happens, in the event loop that runs the call; it must not block.

        Raises:
            ToolNotFound: The sandbox has none of that name, or several servers have; the message names them.
            InvalidArgument: The arguments do not fit the tool's schema.
        """
        order = self._order(name, arguments, OUTPUT_LIMIT)
        mux = self._mux()
        return await run_call(mux, order, None if on_event is None else HeardCollector(mux, on_event))

    async def add_mcp_servers(self, config: Mapping[str, Any], overwrite: bool = False) -> list[McpServer]:
        """Start MCP servers inside the sandbox, as `{"mcpServers": {name: {"command": ...} or {"url": ...}}}` says.

        Their tools are the sandbox's from then on: `list_tools` has them under the server's name. A server that does
        not start is told with the reason and its last words, and disturbs no other.

        Raises:
            InvalidArgument: The config does not fit, or a server of a name is there already and is not to be replaced
                (`overwrite`); nothing was changed.
            CapabilityMissing: Sandboxes of this driver run no MCP servers.
        """
        return await add_servers(self._attached(), config, overwrite, self._wanted.timeout)

    async def remove_mcp_server(self, name: str) -> None:
        """End an MCP server; its tools are gone.

        Raises:
            InvalidArgument: There is none of that name.
        """
        await remove_server(self._attached(), name, self._wanted.timeout)

    async def list_mcp_servers(self) -> list[McpServer]:
        """Give the sandbox's MCP servers by name, each with its state, its tools and its last words."""
        return await list_servers(self._attached(), self._wanted.timeout)

    def watch_tools(self) -> ToolChanges:
        """Follow the changes of the sandbox's tools: `async for changed in box.watch_tools(): ...`.

        The first is one for each MCP server that there is; then comes one for each that is added, removed or says that
        its tools changed.
        """
        return follow_tools(self._attached())

    async def call(self, declaration: Tool) -> ToolResult:
        """Run a tool by its declaration: `await box.call(RunIpythonCell(code="1+1"))`."""
        order = self._order(declaration.name, dump(declaration), OUTPUT_LIMIT)
        return await run_call(self._mux(), order)

    def stream(self, tool: str, /, **arguments: Any) -> EventStream:
        """Run a tool and give its events as they happen, without a bound on their bytes.

        The call starts when the first event is asked for, and is cancelled when the iteration is left early.
        """
        self._attached()
        return EventStream(self._mux, self._order(tool, arguments, 0))

    @property
    def fs(self) -> FilesAsync:
        """The sandbox's files."""
        return FilesAsync(self._file_order, lambda: self._attached().usable())

    async def expose(self, port: int, *, ttl: float = 3600.0) -> ExposedPortAsync:
        """Give a URL that carries HTTP and WebSocket to a port of the sandbox, for `ttl` seconds (1 to 30 days).

        Nothing needs to listen there yet. Whoever has the URL may use it until it is revoked.

        Raises:
            CapabilityMissing: The mesh serves no HTTP.
        """
        return await expose(self._where(), port, ttl)

    async def list_exposed(self) -> list[ExposedPortAsync]:
        """Give the URLs that lead to ports of the sandbox now."""
        return await list_exposed(self._where())

    def _where(self) -> Where:
        record = self._attached().record
        token, timeout = record.lease.fencing_token, self._wanted.timeout
        return Where(record.sandbox_id, token, timeout, lambda: self._attached().usable())

    def _file_order(self, tool: str, arguments: bytes) -> Order:
        record = self._attached().record
        return Order(record.sandbox_id, record.lease.fencing_token, tool, arguments, self._wanted.timeout)

    def _order(self, tool: str, arguments: Mapping[str, Any] | None, output_limit: int) -> Order:
        record = self._attached().record
        return Order(
            sandbox_id=record.sandbox_id,
            fencing_token=record.lease.fencing_token,
            tool=read_name("the tool's name", tool),
            arguments=write_arguments(tool, arguments),
            timeout=self._seconds(tool, arguments),
            output_limit=output_limit,
        )

    def _seconds(self, tool: str, arguments: Mapping[str, Any] | None) -> float:
        # Whoever gives one call more time than the box has means it; a sandbox's own tool may mean something else.
        own = (arguments or {}).get("timeout") if tool in TOOLS else None
        return max(self._wanted.timeout, own) if isinstance(own, int | float) else self._wanted.timeout

    def _mux(self) -> CallMux:
        return self._attached().usable().mux

    def _attached(self) -> Attachment:
        attachment = self._attachment
        if attachment is None:
            state = "CLOSED" if self._closed else "NEW"
            said = (
                "was closed: make a new one" if self._closed else "was not started: enter it by `with`, or start() it"
            )
            raise WrongState(f"this box {said}", {"state": state})
        if attachment.pid != os.getpid():
            named = attachment.record.sandbox_id
            message = f"this box was opened before a fork: attach from here by sandbox_id={named!r} and base_url="
            raise WrongState(message, {"state": "FORKED", "sandbox_id": named})
        return attachment


def tool_method(
    declaration: Callable[P, Tool],
) -> Callable[Concatenate[SandboxAsync, P], Coroutine[Any, Any, ToolResult]]:
    """Make the method that runs a tool, with the parameters and description of its declaration."""

    async def method(self: SandboxAsync, /, *args: P.args, **kwargs: P.kwargs) -> ToolResult:
        return await self.call(build(declaration, *args, **kwargs))

    declared = cast("type[Tool]", declaration)
    method.__name__ = declared.name
    method.__qualname__ = f"SandboxAsync.{declared.name}"
    method.__doc__ = description(declared)
    own = signature(declared)
    self_parameter = next(iter(signature(method).parameters.values()))
    parameters = [self_parameter, *own.parameters.values()]
    method.__signature__ = own.replace(parameters=parameters, return_annotation="ToolResult")  # type: ignore[attr-defined]
    return method


class BaseSandboxAsync(SandboxAsync):
    """A sandbox with a Python kernel, a shell and the history of its workspace."""

    run_ipython_cell = tool_method(RunIpythonCell)
    run_shell_command = tool_method(RunShellCommand)
    commit_changes = tool_method(CommitChanges)
    generate_diff = tool_method(GenerateDiff)
    git_logs = tool_method(GitLogs)


class FilesystemSandboxAsync(BaseSandboxAsync):
    """A sandbox with a Python kernel, a shell and tools for the files of its workspace."""

    default_type: ClassVar[str] = "filesystem"

    read_file = tool_method(ReadFile)
    read_multiple_files = tool_method(ReadMultipleFiles)
    write_file = tool_method(WriteFile)
    edit_file = tool_method(EditFile)
    create_directory = tool_method(CreateDirectory)
    list_directory = tool_method(ListDirectory)
    directory_tree = tool_method(DirectoryTree)
    move_file = tool_method(MoveFile)
    search_files = tool_method(SearchFiles)
    get_file_info = tool_method(GetFileInfo)
    list_allowed_directories = tool_method(ListAllowedDirectories)
