"""The forms in which tools are shown to models, and models' calls are read and answered.

The forms are those of https://modelcontextprotocol.io/specification/2025-06-18/server/tools, of OpenAI's function
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
    """Read the name of a form.

    Raises:
        InvalidArgument: There is none of that name.
    """
    if form not in get_args(Form):
        raise InvalidArgument(f"{form!r} is no form of tools: choose {', '.join(get_args(Form))}", {"form": str(form)})
    return cast("Form", form)


@dataclass(frozen=True)
class ToolSchema:
    """What a model is told of a tool: `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def written(self, form: str) -> dict[str, Any]:
        """Write it in a form: "mcp", "openai" or "anthropic".

        Raises:
            InvalidArgument: There is no such form.
        """
        told: dict[str, Any] = {"name": self.name, "description": self.description}
        parameters = dict(self.parameters) or {"type": "object", "properties": {}}
        match read_form(form):
            case "mcp":
                return {**told, "inputSchema": parameters}
            case "anthropic":
                return {**told, "input_schema": parameters}
            case "openai":
                return {"type": "function", "function": {**told, "parameters": parameters}}


@dataclass(frozen=True)
class ToolCall:
    """A model's call; `call_id` is what the answer names it by, empty where the form has none."""

    name: str
    arguments: dict[str, Any]
    call_id: str = ""


def read_call(call: object) -> ToolCall:
    """Read a call as a model's client gives it: a mapping, or an object with the same attributes.

    OpenAI's has `function` with `name` and `arguments` (JSON in a text), or these two and `call_id` itself;
    Anthropic's `name` and `input`; MCP's `name` and `arguments`.

    Raises:
        InvalidArgument: It has no name, or its arguments are no JSON object.
    """
    named = _get(call, "function") or call
    name = _get(named, "name")
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a call of a tool has a name and arguments, not {call!r}")
    given = _get(named, "input") if _get(named, "arguments") is None else _get(named, "arguments")
    return ToolCall(name, _read_arguments(name, given), read_call_id(call))


def read_call_id(call: object) -> str:
    """Give what a call's answer names it by, empty where there is nothing."""
    found = _get(call, "call_id") or _get(call, "id")
    return found if isinstance(found, str) else ""


def _get(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return getattr(value, name, None)


def _read_arguments(tool: str, given: object) -> dict[str, Any]:
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except ValueError as error:
            raise InvalidArgument(f"the arguments of {tool} are no JSON: {error}", {"tool": tool}) from None
    if given is not None and not isinstance(given, Mapping):
        raise InvalidArgument(f"the arguments of {tool} are no JSON object", {"tool": tool})
    return dict(cast("Mapping[str, Any]", given or {}))


def write_reply(form: str, call_id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Write a tool's result as the message that a model's client takes.

    OpenAI's has text alone, images are named there in words; the others have images too.

    Raises:
        InvalidArgument: There is no such form.
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
            text = "\n".join(_words(block) for block in blocks) or "(no output)"
            said = f"The tool failed.\n{text}" if failed else text
            return {"role": "tool", "tool_call_id": call_id, "content": said}


def _words(block: Mapping[str, Any]) -> str:
    if block.get("type") != "text":
        return f"[{block.get('type')} {block.get('mimeType', '')}]".replace(" ]", "]")
    text = str(block.get("text", "")).rstrip("\n")
    return f"exit code: {text}" if block.get("description") == "returncode" else text


def _anthropic_block(block: Mapping[str, Any]) -> dict[str, Any]:
    if block.get("type") == "image":
        source = {"type": "base64", "media_type": block.get("mimeType"), "data": block.get("data")}
        return {"type": "image", "source": source}
    return {"type": "text", "text": _words(block)}
