"""Tool calls of a sandbox: a part of every async box."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from sandmesh._calls.call import Order, write_arguments
from sandmesh._calls.event_stream import EventStream
from sandmesh._calls.runner import HeardCollector, run_call
from sandmesh._client.messages import read_name, read_tools
from sandmesh._tools import TOOLS, Tool, build, description, dump
from sandmesh._tools.processes import ListCalls, ReadStats
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, ProtocolMismatch
from sandmesh.events import CallEvent
from sandmesh.results import CallSummary, SandboxStats, ToolResult, read_calls, read_stats
from sandmesh.sandbox.handle import OUTPUT_LIMIT, Attachment, SandboxHandle

_NAME = "the tool's name"

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ToolCaller(Protocol[R_co]):
    """A box: `R_co` is a ToolResult, or what is awaited for one."""

    def call(self, declaration: Tool) -> R_co:
        """Run a tool by its declaration."""
        ...


def tool_method(declaration: Callable[P, Tool]) -> Callable[Concatenate[ToolCaller[R], P], R]:
    """Make the method that runs a tool, with the parameters and description of its declaration."""

    def method(self: ToolCaller[R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(build(declaration, *args, **kwargs))

    declared = cast("type[Tool]", declaration)
    method.__name__ = method.__qualname__ = declared.name
    method.__doc__ = description(declared)
    own = signature(declared)
    self_parameter = next(iter(signature(method).parameters.values()))
    parameters = [self_parameter, *own.parameters.values()]
    method.__signature__ = own.replace(parameters=parameters, return_annotation="ToolResult")  # type: ignore[attr-defined]
    return method


class ToolCallsAsync(SandboxHandle):
    """The methods of a box that list and call tools."""

    async def list_tools(self, tool_type: str | None = None) -> dict[str, Any]:
        """List the sandbox's current tools as plain JSON.

        The result is {group: {name: {"name": ..., "json_schema": {"type": "function", "function": {...}}}}};
        `tool_type` restricts it to one group. A group is "generic", "filesystem", or the name of an MCP server, whose
        tools also have what the server declares: "title", "annotations", "output_schema".
        """
        attachment = self._attached()
        request = call_pb2.ListToolsRequest(
            sandbox_id=attachment.record.sandbox_id,
            group=tool_type or "",
            fencing_token=attachment.record.lease.fencing_token,
        )
        timeout = self._config.timeout
        return read_tools(await attachment.usable().ask(lambda stubs: stubs.calls.ListTools, request, timeout))

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        on_event: Callable[[CallEvent], None] | None = None,
    ) -> ToolResult:
        """Run any tool of the sandbox by name, including those that only the sandbox knows.

        A tool of an MCP server has the name that the server declares, and always also "server.tool". If an MCP server
        rejects the arguments, the result has `is_error`.

        `on_event` is called with each event as it happens, in the event loop that runs the call; it must not block.

        Raises:
            ToolNotFound: No tool, or tools of several servers, have that name; the message lists them.
            InvalidArgument: The arguments do not fit the tool's schema.
        """
        attachment = self._attached()
        order = self._order(attachment, read_name(_NAME, name), arguments, OUTPUT_LIMIT)
        mux = attachment.usable().mux
        return await run_call(mux, order, None if on_event is None else HeardCollector(mux, on_event))

    async def call(self, declaration: Tool) -> ToolResult:
        """Run a tool by its declaration: `await box.call(RunIpythonCell(code="1+1"))`."""
        attachment = self._attached()
        order = self._order(attachment, declaration.name, dump(declaration), OUTPUT_LIMIT)
        return await run_call(attachment.usable().mux, order)

    async def stats(self) -> SandboxStats:
        """Return what the sandbox uses now, with samples of up to an hour since it was first asked.

        Raises:
            ProtocolMismatch: Its agent answers with something else.
        """
        attachment = self._attached()
        result = await self.call(ReadStats())
        sent, received = await self._traffic(attachment)
        try:
            return read_stats(result["structuredContent"], sent, received)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolMismatch(f"the sandbox's agent does not say what it uses: {result.text or error!r}") from None

    async def _traffic(self, attachment: Attachment) -> tuple[int, int] | tuple[None, None]:
        """Return the bytes to hosts and from them; None where the driver does not count them."""
        request = sandbox_pb2.GetNetworkRequest(sandbox_id=attachment.record.sandbox_id)
        try:
            found = await attachment.usable().ask(
                lambda stubs: stubs.sandboxes.GetNetwork, request, self._config.timeout
            )
        except CapabilityMissing:
            return None, None
        return sum(host.sent_bytes for host in found.hosts), sum(host.received_bytes for host in found.hosts)

    async def list_calls(self) -> list[CallSummary]:
        """List the newest 200 calls of the sandbox, the oldest first, without their arguments and results.

        Calls that only look at it, as this one, are not listed; the list ends with the sandbox.

        Raises:
            ProtocolMismatch: Its agent answers with something else.
        """
        result = await self.call(ListCalls())
        try:
            return read_calls(result["structuredContent"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolMismatch(f"the sandbox's agent does not list its calls: {result.text or error!r}") from None

    def stream(self, tool: str, /, **arguments: Any) -> EventStream:
        """Run a tool and yield its events as they happen, with no limit on their size.

        The call starts with the first `anext`, and is cancelled when the iteration is left early.
        """
        order = self._order(self._attached(), read_name(_NAME, tool), arguments, 0)
        return EventStream(lambda: self._attached().usable().mux, order)

    def _order(
        self, attachment: Attachment, tool: str, arguments: Mapping[str, Any] | None, output_limit: int
    ) -> Order:
        record, timeout = attachment.record, self._config.timeout
        written = write_arguments(tool, arguments)
        # A call may be given more time than the box has; `timeout` of a sandbox's own tool may mean something else.
        if arguments and tool in TOOLS and isinstance(explicit := arguments.get("timeout"), int | float):
            timeout = max(timeout, explicit)
        return Order(
            sandbox_id=record.sandbox_id,
            fencing_token=record.lease.fencing_token,
            tool=tool,
            arguments=written,
            timeout=timeout,
            output_limit=output_limit,
            traces_processes=attachment.trace_processes,
        )
