"""The formats for models' clients, validated by the vendors' own types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from anthropic.types import ToolParam, ToolResultBlockParam
from mcp.types import CallToolResult
from mcp.types import Tool as McpToolType
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionToolMessageParam
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import BaseModel, TypeAdapter

from sandmesh import SandboxAsync, ToolResult
from sandmesh._tools.forms import FORMS
from sandmesh._tools.model_names import LONGEST, model_names
from sandmesh.sandbox.tools.toolkit import Toolkit

SCHEMA_TYPES: dict[str, Any] = {
    "openai": ChatCompletionFunctionToolParam,
    "openai-responses": FunctionToolParam,
    "anthropic": ToolParam,
    "mcp": McpToolType,
}
REPLY_TYPES: dict[str, Any] = {
    "openai": ChatCompletionToolMessageParam,
    "openai-responses": FunctionCallOutput,
    "anthropic": ToolResultBlockParam,
    "mcp": CallToolResult,
}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ACCEPTED = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


class Box:
    """A sandbox whose tools return their own name and an image, and that keeps which were called."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.twin = SandboxAsync()

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Run a tool."""
        self.called.append(name)
        text = {"type": "text", "text": f"{name} {dict(arguments or {})}", "annotations": None, "description": "stdout"}
        return ToolResult({"meta": None, "content": [text, IMAGE], "isError": False})


def listing(*tools: tuple[str, str]) -> dict[str, Any]:
    """Return what `list_tools` returns for tools, each of (group, name)."""
    found: dict[str, Any] = {}
    for group, name in tools:
        function = {"name": name, "description": f"The tool {name}.", "parameters": PARAMETERS}
        found.setdefault(group, {})[name] = {"name": name, "json_schema": {"type": "function", "function": function}}
    return found


def name_of(schema: Mapping[str, Any]) -> str:
    """Return the name in a schema of any format."""
    return str(schema.get("function", schema)["name"])


def call_of(form: str, name: str) -> Any:
    """Return a model's call in a format."""
    match form:
        case "openai":
            return {"id": "c1", "type": "function", "function": {"name": name, "arguments": '{"text": "x"}'}}
        case "openai-responses":
            return ResponseFunctionToolCall(
                type="function_call", id="fc_1", call_id="c1", name=name, arguments='{"text": "x"}'
            )
        case "anthropic":
            return {"type": "tool_use", "id": "c1", "name": name, "input": {"text": "x"}}
        case _:
            return {"name": name, "arguments": {"text": "x"}}


def check(vendor_type: Any, value: dict[str, Any]) -> None:
    """Validate a value by a vendor's type, which must also know each of its fields."""
    TypeAdapter(vendor_type).validate_python(value)
    is_model = isinstance(vendor_type, type) and issubclass(vendor_type, BaseModel)
    if not is_model:
        assert set(value) <= set(vendor_type.__annotations__), value


@pytest.mark.parametrize("form", FORMS)
def test_schemas_and_replies_are_what_the_vendors_own_types_accept(form: str) -> None:
    kit = Toolkit(Box(), form, listing(("generic", "run_shell_command"), ("time", "now")))
    for schema in kit:
        check(SCHEMA_TYPES[form], schema)
    check(REPLY_TYPES[form], kit.reply(call_of(form, "now")))
    check(REPLY_TYPES[form], kit.reply({"id": "c1", "call_id": "c1", "name": "now", "arguments": "{"}))


@pytest.mark.parametrize("form", FORMS)
def test_two_servers_with_a_tool_of_one_name_give_the_model_two_names_that_it_accepts(form: str) -> None:
    box = Box()
    kit = Toolkit(box, form, listing(("one", "echo"), ("two", "echo"), ("two", "echo it"), ("generic", "git_logs")))
    names = [name_of(schema) for schema in kit]
    assert names == ["echo_it", "git_logs", "one_echo", "two_echo"]
    for name in names:
        assert ACCEPTED.match(name)
        kit.dispatch(call_of(form, name))
    assert box.called == ["echo it", "git_logs", "one.echo", "two.echo"]


def test_a_tool_that_sandmesh_declares_keeps_its_name_beside_a_servers() -> None:
    kit = Toolkit(Box(), "openai", listing(("generic", "run_shell_command"), ("mine", "run_shell_command")))
    assert sorted(map(name_of, kit)) == ["mine_run_shell_command", "run_shell_command"]


def test_names_that_would_be_equal_or_too_long_are_told_apart_whatever_their_order() -> None:
    names = ["a.b", "a_b", "a b", "x" * 70, "x" * 71, "日本"]
    made = model_names(names)
    assert made == model_names(reversed(names))
    assert made["a_b"] == "a_b"
    assert len(set(made.values())) == len(names)
    assert all(ACCEPTED.match(name) for name in made.values())
    assert len(made["x" * 70]) == LONGEST


def test_a_reply_to_openais_responses_has_the_image_of_a_result() -> None:
    reply = Toolkit(Box(), "openai-responses", listing(("time", "now"))).reply(call_of("openai-responses", "now"))
    assert reply["call_id"] == "c1"
    assert reply["output"] == [
        {"type": "input_text", "text": "now {'text': 'x'}"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
    ]
