"""All tools of one sandbox for a model: their schemas in the model's format, dispatch of its calls, and replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sandmesh._client.sync import run
from sandmesh._tools.forms import Form, ToolCall, ToolSchema, read_call, read_call_id, read_form, write_reply
from sandmesh._tools.model_names import model_names, qualified_names
from sandmesh.errors import InvalidArgument, ToolNotFound
from sandmesh.replies import REPLY_CHARACTERS, read_reply_characters, shorten_text
from sandmesh.results import ToolResult
from sandmesh.sandbox.tools.reply_files import ReplyBox, ReplyFiles


class ToolRunner(Protocol):
    """The part of a sandbox that a toolkit uses."""

    @property
    def twin(self) -> ReplyBox:
        """Its async twin."""
        ...

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Run a tool."""
        ...


class ToolCallerAsync(ReplyBox, Protocol):
    """The part of an async sandbox that a toolkit uses."""

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Run a tool."""
        ...


class _Schemas(list[Any]):
    def __init__(
        self, box: ReplyBox, form: str, listing: Mapping[str, Any], reply_characters: int = REPLY_CHARACTERS
    ) -> None:
        self._files = ReplyFiles(box)
        self._characters = reply_characters
        self.form: Form = read_form(form)
        """The format: "mcp", "openai", "openai-responses" or "anthropic"."""
        schemas = read_listing(listing)
        names = model_names(schemas)
        self._called = {named: called for called, named in names.items()}
        super().__init__(
            ToolSchema(names[called], schema.description, schema.parameters).written(form)
            for called, schema in schemas.items()
        )

    def _read(self, call: object, arguments: Mapping[str, Any] | None) -> ToolCall:
        read = ToolCall(call, dict(arguments or {})) if isinstance(call, str) else read_call(call)
        return ToolCall(self._called.get(read.name, read.name), read.arguments, read.call_id)

    def _bound(self, reply_characters: int | None) -> int:
        return self._characters if reply_characters is None else read_reply_characters(reply_characters)

    def _refusal(self, call: object, error: InvalidArgument | ToolNotFound, bound: int) -> dict[str, Any]:
        text = shorten_text(error.message, bound)
        block = {"type": "text", "text": text, "annotations": None, "description": "stderr"}
        return self._reply(call, ToolResult({"meta": None, "content": [block], "isError": True}))

    def _reply(self, call: object, result: ToolResult) -> dict[str, Any]:
        return write_reply(self.form, read_call_id(call), result)


class Toolkit(_Schemas):
    """A list of schemas that a model's client takes as it is, and the dispatcher of the model's calls."""

    def __init__(
        self, box: ToolRunner, form: str, listing: Mapping[str, Any], reply_characters: int = REPLY_CHARACTERS
    ) -> None:
        """Build a toolkit from the result of `list_tools`.

        Raises:
            InvalidArgument: The format does not exist.
        """
        super().__init__(box.twin, form, listing, reply_characters)
        self._box = box

    def dispatch(self, call: object, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Run a model's call, or a tool by name with its arguments.

        Raises:
            InvalidArgument: The call cannot be read, or the arguments do not fit.
            ToolNotFound: The sandbox has no such tool.
        """
        read = self._read(call, arguments)
        return self._box.call_tool(read.name, read.arguments)

    def reply(self, call: object, *, reply_characters: int | None = None) -> dict[str, Any]:
        """Run a model's call and return its reply as a message; a call that does not fit is reported to the model.

        Its text has at most `reply_characters`, None: the toolkit's. A longer one is its start and its end, with a note
        that names the file with the whole in the workspace.

        Raises:
            InvalidArgument: The bound is not a whole number above 0.
        """
        bound = self._bound(reply_characters)
        try:
            result = self.dispatch(call)
        except (InvalidArgument, ToolNotFound) as error:
            return self._refusal(call, error, bound)
        return self._reply(call, run("ToolkitAsync", self._files.shorten(result, bound)))


class ToolkitAsync(_Schemas):
    """The async twin of `Toolkit`."""

    def __init__(
        self, box: ToolCallerAsync, form: str, listing: Mapping[str, Any], reply_characters: int = REPLY_CHARACTERS
    ) -> None:
        """Build a toolkit from the result of `list_tools`.

        Raises:
            InvalidArgument: The format does not exist.
        """
        super().__init__(box, form, listing, reply_characters)
        self._box = box

    async def dispatch(self, call: object, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Run a model's call, or a tool by name with its arguments.

        Raises:
            InvalidArgument: The call cannot be read, or the arguments do not fit.
            ToolNotFound: The sandbox has no such tool.
        """
        read = self._read(call, arguments)
        return await self._box.call_tool(read.name, read.arguments)

    async def reply(self, call: object, *, reply_characters: int | None = None) -> dict[str, Any]:
        """Run a model's call and return its reply as a message; a call that does not fit is reported to the model.

        Its text has at most `reply_characters`, None: the toolkit's. A longer one is its start and its end, with a note
        that names the file with the whole in the workspace.

        Raises:
            InvalidArgument: The bound is not a whole number above 0.
        """
        bound = self._bound(reply_characters)
        try:
            result = await self.dispatch(call)
        except (InvalidArgument, ToolNotFound) as error:
            return self._refusal(call, error, bound)
        return self._reply(call, await self._files.shorten(result, bound))


def read_listing(listing: Mapping[str, Any]) -> dict[str, ToolSchema]:
    """Return the schemas in a result of `list_tools`, by the name by which a tool is called, sorted."""
    functions = {
        (group, name): tool["json_schema"]["function"]
        for group, tools in listing.items()
        for name, tool in tools.items()
    }
    called = qualified_names(functions)
    schemas = {
        called[key]: ToolSchema(one["name"], one["description"], one["parameters"]) for key, one in functions.items()
    }
    return dict(sorted(schemas.items()))
