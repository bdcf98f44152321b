"""The formats of models' clients for tools, calls and replies.

The formats are those of https://modelcontextprotocol.io/specification/2025-06-18/server/tools, of OpenAI's function
calling, in its chat completions ("openai") and its responses ("openai-responses"), both
https://platform.openai.com/docs/guides/function-calling, and of Anthropic's tool use
(https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from sandmesh.errors import InvalidArgument

Form = Literal["mcp", "openai", "openai-responses", "anthropic"]
FORMS: tuple[Form, ...] = get_args(Form)


def read_form(form: str) -> Form:
    """Check the name of a format.

    Raises:
        InvalidArgument: The format does not exist.
    """
    if form not in FORMS:
        raise InvalidArgument(f"{form!r} is not a format of tools: choose {', '.join(FORMS)}", {"form": str(form)})
    return form


@dataclass(frozen=True)
class ToolSchema:
    """The description of a tool for a model: `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def written(self, form: str) -> dict[str, Any]:
        """Return it in a format: "mcp", "openai", "openai-responses" or "anthropic".

        A schema of OpenAI's responses is not strict: strict ones cannot have optional parameters.

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
            case "openai-responses":
                return {"type": "function", **common, "parameters": parameters, "strict": False}


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

    That of OpenAI's chat completions has only text, where images become a placeholder; the others have images too.

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
            return {"role": "tool", "tool_call_id": call_id, "content": _joined(blocks, failed)}
        case "openai-responses":
            return {"type": "function_call_output", "call_id": call_id, "output": _response_output(blocks, failed)}


def _joined(blocks: Sequence[Mapping[str, Any]], failed: bool) -> str:
    text = "\n".join(_text(block) for block in blocks) or "(no output)"
    return f"The tool failed.\n{text}" if failed else text


def _response_output(blocks: Sequence[Mapping[str, Any]], failed: bool) -> str | list[dict[str, Any]]:
    images = [block for block in blocks if block.get("type") == "image"]
    if not images:
        return _joined(blocks, failed)
    texts = [block for block in blocks if block.get("type") != "image"]
    urls = [f"data:{image.get('mimeType')};base64,{image.get('data')}" for image in images]
    return [
        *([{"type": "input_text", "text": _joined(texts, failed)}] if texts or failed else []),
        *({"type": "input_image", "image_url": url} for url in urls),
    ]


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
