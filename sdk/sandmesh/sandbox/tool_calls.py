"""Tool calls of a sandbox: a part of every async box."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sandmesh._calls.call import Order
from sandmesh._calls.runner import EventStream, HeardCollector, run_call
from sandmesh._client.messages import read_name, read_tools, write_arguments
from sandmesh._tools import TOOLS, Tool, dump
from sandmesh.api.call.v1 import call_pb2
from sandmesh.events import CallEvent
from sandmesh.results import ToolResult
from sandmesh.sandbox.attachment import OUTPUT_LIMIT
from sandmesh.sandbox.handle import SandboxHandle
from sandmesh.sandbox.toolkit import ToolkitAsync


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

    async def as_tools(self, form: str = "openai") -> ToolkitAsync:
        """Return all tools in a model's format, with a dispatcher for its calls.

        The format is "openai", "openai-responses", "anthropic" or "mcp"; names are unique and fit for all vendors.
        """
        return ToolkitAsync(self, form, await self.list_tools())

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
        order = self._order(name, arguments, OUTPUT_LIMIT)
        mux = self._mux()
        return await run_call(mux, order, None if on_event is None else HeardCollector(mux, on_event))

    async def call(self, declaration: Tool) -> ToolResult:
        """Run a tool by its declaration: `await box.call(RunIpythonCell(code="1+1"))`."""
        order = self._order(declaration.name, dump(declaration), OUTPUT_LIMIT)
        return await run_call(self._mux(), order)

    def stream(self, tool: str, /, **arguments: Any) -> EventStream:
        """Run a tool and yield its events as they happen, with no limit on their size.

        The call starts with the first `anext`, and is cancelled when the iteration is left early.
        """
        self._attached()
        return EventStream(self._mux, self._order(tool, arguments, 0))

    def _order(self, tool: str, arguments: Mapping[str, Any] | None, output_limit: int) -> Order:
        record = self._attached().record
        return Order(
            sandbox_id=record.sandbox_id,
            fencing_token=record.lease.fencing_token,
            tool=read_name("the tool's name", tool),
            arguments=write_arguments(tool, arguments),
            timeout=self._call_timeout(tool, arguments),
            output_limit=output_limit,
        )

    def _call_timeout(self, tool: str, arguments: Mapping[str, Any] | None) -> float:
        # A call may be given more time than the box has; `timeout` of a sandbox's own tool may mean something else.
        explicit = (arguments or {}).get("timeout") if tool in TOOLS else None
        return max(self._config.timeout, explicit) if isinstance(explicit, int | float) else self._config.timeout
