"""All tools of one sandbox for a model: their schemas in its form, what runs its calls, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sandmesh._tools.forms import Form, ToolCall, ToolSchema, read_call, read_call_id, read_form, write_reply
from sandmesh.errors import InvalidArgument, ToolNotFound
from sandmesh.results import ToolResult


class CallsTools(Protocol):
    """A sandbox, as far as a toolkit uses it."""

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Run a tool."""
        ...


class CallsToolsAsync(Protocol):
    """A sandbox of an event loop, as far as a toolkit uses it."""

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Run a tool."""
        ...


class _Schemas(list[Any]):
    def __init__(self, form: str, listing: Mapping[str, Any]) -> None:
        self.form: Form = read_form(form)
        """The form: "mcp", "openai" or "anthropic"."""
        super().__init__(schema.written(form) for schema in read_listing(listing))

    def _answer(self, call: object, said: ToolResult | InvalidArgument | ToolNotFound) -> dict[str, Any]:
        if not isinstance(said, ToolResult):
            block = {"type": "text", "text": said.message, "annotations": None, "description": "stderr"}
            said = ToolResult({"meta": None, "content": [block], "isError": True})
        return write_reply(self.form, read_call_id(call), said)


class Toolkit(_Schemas):
    """The schemas as a list, to be given to a model's client as it is, and what runs the model's calls."""

    def __init__(self, box: CallsTools, form: str, listing: Mapping[str, Any]) -> None:
        """Make it of what `list_tools` gave.

        Raises:
            InvalidArgument: There is no such form.
        """
        super().__init__(form, listing)
        self._box = box

    def dispatch(self, call: object, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Run a call as the model's client gives it, or a tool by name with its arguments.

        Raises:
            InvalidArgument: It is no call, or the arguments do not fit.
            ToolNotFound: The sandbox has no such tool.
        """
        read = _read(call, arguments)
        return self._box.call_tool(read.name, read.arguments)

    def reply(self, call: object) -> dict[str, Any]:
        """Run a model's call and give the message that answers it; a call that does not fit is told to the model."""
        try:
            return self._answer(call, self.dispatch(call))
        except (InvalidArgument, ToolNotFound) as error:
            return self._answer(call, error)


class ToolkitAsync(_Schemas):
    """What `Toolkit` is, for an event loop."""

    def __init__(self, box: CallsToolsAsync, form: str, listing: Mapping[str, Any]) -> None:
        """Make it of what `list_tools` gave.

        Raises:
            InvalidArgument: There is no such form.
        """
        super().__init__(form, listing)
        self._box = box

    async def dispatch(self, call: object, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Run a call as the model's client gives it, or a tool by name with its arguments.

        Raises:
            InvalidArgument: It is no call, or the arguments do not fit.
            ToolNotFound: The sandbox has no such tool.
        """
        read = _read(call, arguments)
        return await self._box.call_tool(read.name, read.arguments)

    async def reply(self, call: object) -> dict[str, Any]:
        """Run a model's call and give the message that answers it; a call that does not fit is told to the model."""
        try:
            return self._answer(call, await self.dispatch(call))
        except (InvalidArgument, ToolNotFound) as error:
            return self._answer(call, error)


def read_listing(listing: Mapping[str, Any]) -> list[ToolSchema]:
    """Give the tools that `list_tools` lists, by name."""
    functions = [tool["json_schema"]["function"] for group in listing.values() for tool in group.values()]
    schemas = [ToolSchema(one["name"], one["description"], one["parameters"]) for one in functions]
    return sorted(schemas, key=lambda schema: schema.name)


def _read(call: object, arguments: Mapping[str, Any] | None) -> ToolCall:
    return ToolCall(call, dict(arguments or {})) if isinstance(call, str) else read_call(call)
