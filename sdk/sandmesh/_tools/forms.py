"""The formats of models' clients for tools, calls and replies.

The formats are those of https://modelcontextprotocol.io/specification/2025-06-18/server/tools, of OpenAI's function
calling (https://platform.openai.com/docs/guides/function-calling) and of Anthropic's tool use
(https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from sandmesh.errors import InvalidArgument

Form = Literal["mcp", "openai", "anthropic"]


def read_form(form: str) -> Form:
    """Check the name of a format.

    Raises:
        InvalidArgument: The format does not exist.
    """
    if form not in get_args(Form):
        known = ", ".join(get_args(Form))
        raise InvalidArgument(f"{form!r} is not a format of tools: choose {known}", {"form": str(form)})
    return cast("Form", form)


@dataclass(frozen=True)
class ToolSchema:
    """The description of a tool for a model: `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def written(self, form: str) -> dict[str, Any]:
        """Return it in a format: "mcp", "openai" or "anthropic".

        Raises:
            InvalidArgument: The format does not exist.
        """
        common: dict[str, Any] = {"name": self.name, "description": self.description}
        parameters = dict(self.parameters) or {"type": "object", "properties": {}}
        match read_form(form):
            case "mcp":
                return {**common, "inputSchema": parameters}
            case "anthropic":
                return {**common, "input_schema": parameters}
            case "openai":
                return {"type": "function", "function": {**common, "parameters": parameters}}


@dataclass(frozen=True)
class ToolCall:
    """A model's call; `call_id` is referenced by the reply, empty if the format has none."""

    name: str
    arguments: dict[str, Any]
    call_id: str = ""


def read_call(call: object) -> ToolCall:
    """Parse a call of a model's client: a mapping, or an object with the same attributes.

    OpenAI's has `function` with `name` and `arguments` (JSON as a str), or these two and `call_id` directly;
    Anthropic's `name` and `input`; MCP's `name` and `arguments`.

    Raises:
        InvalidArgument: It has no name, or its arguments are not a JSON object.
    """
    named = _get(call, "function") or call
    name = _get(named, "name")
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a tool call must have a name and arguments: {call!r}")
    arguments = _get(named, "input") if _get(named, "arguments") is None else _get(named, "arguments")
    return ToolCall(name, _read_arguments(name, arguments), read_call_id(call))


def read_call_id(call: object) -> str:
    """Return a call's id, empty if it has none."""
    call_id = _get(call, "call_id") or _get(call, "id")
    return call_id if isinstance(call_id, str) else ""


def _get(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return getattr(value, name, None)


def _read_arguments(tool: str, arguments: object) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as error:
            raise InvalidArgument(f"the arguments of {tool} are not JSON: {error}", {"tool": tool}) from None
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidArgument(f"the arguments of {tool} are not a JSON object", {"tool": tool})
    return dict(cast("Mapping[str, Any]", arguments or {}))


def write_reply(form: str, call_id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a tool's result into the message that a model's client takes.

    OpenAI's has only text, where images become a placeholder; the others have images too.

    Raises:
        InvalidArgument: The format does not exist.
    """
    blocks: list[dict[str, Any]] = list(result.get("content", ()))
    failed = bool(result.get("isError"))
    match read_form(form):
        case "mcp":
            return {"content": blocks, "isError": failed}
        case "anthropic":
            content = [_anthropic_block(block) for block in blocks]
            return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": failed}
        case "openai":
            text = "\n".join(_text(block) for block in blocks) or "(no output)"
            content_text = f"The tool failed.\n{text}" if failed else text
            return {"role": "tool", "tool_call_id": call_id, "content": content_text}


def _text(block: Mapping[str, Any]) -> str:
    if block.get("type") != "text":
        return f"[{block.get('type')} {block.get('mimeType', '')}]".replace(" ]", "]")
    text = str(block.get("text", "")).rstrip("\n")
    return f"exit code: {text}" if block.get("description") == "returncode" else text


def _anthropic_block(block: Mapping[str, Any]) -> dict[str, Any]:
    if block.get("type") == "image":
        source = {"type": "base64", "media_type": block.get("mimeType"), "data": block.get("data")}
        return {"type": "image", "source": source}
    return {"type": "text", "text": _text(block)}
