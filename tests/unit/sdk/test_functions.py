"""Tools as functions: what they say of themselves, where they run, and what they refuse."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

from sandmesh import BaseSandbox, BaseSandboxAsync, SandboxType, errors, tools
from sandmesh.tools import (
    FunctionTool,
    SandboxTool,
    ToolSchema,
    function_tool,
    read_file,
    run_ipython_cell,
    run_shell_command,
)

from .conftest import World


def power(base: int, exponent: int = 2) -> int:
    """Raise a number to a power."""
    return int(base**exponent)


def test_a_tool_says_what_it_is() -> None:
    assert (run_ipython_cell.name, run_ipython_cell.tool_type) == ("run_ipython_cell", "generic")
    assert run_ipython_cell.sandbox_type is SandboxType.BASE
    assert read_file.sandbox_type is SandboxType.FILESYSTEM
    assert run_ipython_cell.__name__ == "run_ipython_cell"
    assert json.loads(json.dumps(run_ipython_cell.schema)) == run_ipython_cell.schema


def test_every_tool_that_a_model_is_shown_is_a_function() -> None:
    shown = {name for name, declared in tools.TOOLS.items() if declared.group not in tools.PLUMBING}
    assert {name for name in shown if getattr(tools, name).name == name} == shown


@pytest.mark.parametrize(
    ("form", "path"),
    [("openai", ("function", "parameters")), ("mcp", ("inputSchema",)), ("anthropic", ("input_schema",))],
)
def test_its_schema_comes_in_each_form(form: str, path: tuple[str, ...]) -> None:
    schema: Any = run_shell_command.schema_as(form)
    assert schema.get("function", schema)["name"] == "run_shell_command"
    for key in path:
        schema = schema[key]
    assert schema["required"] == ["command"]
    assert schema["type"] == "object"


def test_a_form_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(errors.InvalidArgument, match="mcp, openai, openai-responses, anthropic"):
        run_ipython_cell.schema_as("gemini")


def test_binding_gives_another_tool_and_leaves_the_first_as_it_is(threaded_world: World) -> None:
    with BaseSandbox(base_url=threaded_world.address) as box:
        bound = run_ipython_cell.bind(sandbox=box)
        assert bound.sandbox is box
        assert run_ipython_cell.sandbox is None
        assert bound(code="1+1").text == "2"
        assert bound("1+1").text == "2", "by position, too"


def test_a_sandbox_that_is_given_goes_before_a_bound_one(threaded_world: World) -> None:
    address = threaded_world.address
    with BaseSandbox(base_url=address) as one, BaseSandbox(base_url=address) as other:
        run_ipython_cell.bind(one)(sandbox=other, code="1+1")
        (call,) = threaded_world.mesh.calls.values()
        assert call.start.sandbox_id == other.sandbox_id


def test_without_a_sandbox_one_is_made_for_the_call_and_given_back(
    threaded_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDMESH_ADDRESS", threaded_world.address)
    assert run_ipython_cell(code="1+1").text == "2"
    assert threaded_world.mesh.sessions == {}
    (call,) = threaded_world.mesh.calls.values()
    assert call.start.sandbox_id == "sb_1"


async def test_tools_run_in_an_event_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDMESH_ADDRESS", world.address)
    assert (await run_ipython_cell.call_async(code="1+1")).text == "2"
    async with BaseSandboxAsync() as box:
        assert (await run_ipython_cell.bind(box).call_async(code="1+1")).text == "2"
        with pytest.raises(errors.InvalidArgument, match="call_async"):
            run_ipython_cell.bind(box)(code="1+1")


@pytest.mark.parametrize(
    "call",
    [
        run_ipython_cell,
        lambda: run_ipython_cell(code=3),
        lambda: run_ipython_cell(code="1", colour="red"),
        lambda: run_ipython_cell("1", code="2"),
        lambda: run_ipython_cell.bind("box"),  # type: ignore[arg-type]
        lambda: run_ipython_cell(sandbox="box", code="1"),  # type: ignore[arg-type]
        lambda: read_file.bind(BaseSandbox()),
    ],
)
def test_what_does_not_fit_is_refused_before_a_sandbox_is_made(call: Callable[[], object]) -> None:
    with pytest.raises(errors.InvalidArgument):
        call()


def test_a_tool_that_only_a_sandbox_knows_is_a_function_too(threaded_world: World) -> None:
    threaded_world.mesh.tools["get_time"] = threaded_world.mesh.tools["run_ipython_cell"]
    schema = ToolSchema("get_time", "Tell the time.", {"type": "object", "properties": {"zone": {"type": "string"}}})
    with BaseSandbox(base_url=threaded_world.address) as box:
        tool = SandboxTool(schema, sandbox=box)
        assert json.loads(tool("UTC").stdout) == {"zone": "UTC"}


def test_a_plain_function_has_the_parameters_of_its_tool(threaded_world: World) -> None:
    with BaseSandbox(base_url=threaded_world.address) as box:
        function = run_shell_command.bind(box).make_function()
        parameters = inspect.signature(function).parameters
        assert list(parameters) == ["command", "timeout", "cwd", "env"]
        assert parameters["command"].annotation is str
        assert function.__name__ == "run_shell_command"
        threaded_world.mesh.tools["run_shell_command"] = threaded_world.mesh.tools["run_ipython_cell"]
        assert json.loads(function("true").stdout) == {"command": "true"}


def test_a_function_of_the_program_becomes_a_tool() -> None:
    tool = FunctionTool(power)
    assert (tool.name, tool.description) == ("power", "Raise a number to a power.")
    assert tool.sandbox_type is SandboxType.DUMMY
    assert tool.schema["function"]["parameters"] == {
        "title": "power",
        "type": "object",
        "properties": {"base": {"type": "integer"}, "exponent": {"type": "integer", "default": 2}},
        "required": ["base"],
        "additionalProperties": False,
    }
    assert tool(base=2, exponent=10).text == "1024"
    assert tool(3).text == "9"
    assert json.loads(json.dumps(tool(base=2))) == tool(base=2)


def test_methods_partial_functions_and_unusual_names_become_tools() -> None:
    class Counter:
        total = 40

        def add(self, _count: int, schema: str = "") -> str:
            return f"{self.total + _count}{schema}"

    assert FunctionTool(Counter().add)(_count=2, schema="!").text == "42!"
    partial = FunctionTool(functools.partial(power, exponent=3))
    assert "exponent" not in partial.schema["function"]["parameters"]["properties"]
    assert partial(base=2).text == "8"
    assert FunctionTool(power).bind(exponent=5)(base=2).text == "32"


def test_a_decorator_names_and_describes() -> None:
    @function_tool(name="to_the_power", description="A power.")
    def helper(base: int, exponent: int) -> int:
        return int(base**exponent)

    assert (helper.name, helper.description) == ("to_the_power", "A power.")
    assert helper(base=2, exponent=3).text == "8"


def test_what_a_function_raises_is_a_result() -> None:
    result = FunctionTool(power)(base=0, exponent=-1)
    assert result.is_error
    assert "ZeroDivisionError" in result.stderr


async def test_coroutine_functions_are_awaited_and_others_run_in_a_thread() -> None:
    async def slowly(number: int) -> int:
        await asyncio.sleep(0)
        return number + 1

    assert (await FunctionTool(slowly).call_async(number=1)).text == "2"
    assert (await FunctionTool(power).call_async(base=2)).text == "4"
    with pytest.raises(errors.InvalidArgument, match="call_async"):
        FunctionTool(slowly)(number=1)


@pytest.mark.parametrize("arguments", [{}, {"base": "two"}, {"base": 1, "colour": "red"}])
def test_arguments_that_do_not_fit_a_function_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match="power"):
        FunctionTool(power)(**arguments)


def test_a_function_whose_parameters_have_no_names_is_no_tool() -> None:
    def unnamed(*numbers: int) -> int:
        return sum(numbers)

    with pytest.raises(errors.InvalidArgument, match="passed by name"):
        FunctionTool(unnamed)
    with pytest.raises(errors.InvalidArgument, match="function"):
        FunctionTool(3)  # type: ignore[arg-type]


CALLS: dict[str, Any] = {
    "openai": {"id": "c1", "function": {"name": "run_ipython_cell", "arguments": '{"code": "1+1"}'}},
    "anthropic": {"type": "tool_use", "id": "c1", "name": "run_ipython_cell", "input": {"code": "1+1"}},
    "mcp": {"name": "run_ipython_cell", "arguments": {"code": "1+1"}},
}
REPLIES: dict[str, Any] = {
    "openai": {"role": "tool", "tool_call_id": "c1", "content": "2"},
    "anthropic": {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "2"}],
        "is_error": False,
    },
    "mcp": {
        "content": [{"type": "text", "text": "2", "annotations": None, "description": "stdout"}],
        "isError": False,
    },
}


@pytest.mark.parametrize("form", ["openai", "anthropic", "mcp"])
def test_all_tools_of_a_sandbox_are_a_list_that_runs_the_models_calls(threaded_world: World, form: str) -> None:
    with BaseSandbox(base_url=threaded_world.address) as box:
        kit = box.as_tools(form)
        assert [tool.get("function", tool)["name"] for tool in kit] == ["run_ipython_cell"]
        assert kit.dispatch(CALLS[form]).text == "2"
        assert kit.dispatch("run_ipython_cell", {"code": "1+1"}).text == "2"
        assert kit.reply(CALLS[form]) == REPLIES[form]


async def test_they_are_in_an_event_loop_too(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        kit = await box.as_tools("anthropic")
        assert (await kit.dispatch(CALLS["anthropic"])).text == "2"
        assert await kit.reply(CALLS["anthropic"]) == REPLIES["anthropic"]


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "function": {"name": "no_such_tool", "arguments": "{}"}},
        {"id": "c1", "function": {"name": "run_ipython_cell", "arguments": "{code:"}},
        {"id": "c1", "function": {"name": "run_ipython_cell", "arguments": "[1]"}},
        {"id": "c1", "function": {"arguments": "{}"}},
    ],
)
def test_a_models_mistake_is_told_to_the_model_and_raised_to_a_program(threaded_world: World, call: object) -> None:
    with BaseSandbox(base_url=threaded_world.address) as box:
        kit = box.as_tools("openai")
        reply = kit.reply(call)
        assert reply["tool_call_id"] == "c1"
        assert reply["content"].startswith("The tool failed.")
        with pytest.raises((errors.ToolNotFound, errors.InvalidArgument)):
            kit.dispatch(call)


def test_a_type_can_be_added_at_run_time_once() -> None:
    added = SandboxType.add_member("TELESCOPE")
    assert added is SandboxType("telescope") is SandboxType.add_member("TELESCOPE")
    assert added == "telescope"
    assert added in list(SandboxType)
    assert getattr(SandboxType, "TELESCOPE") is SandboxType["TELESCOPE"] is added  # noqa: B009 - type-checkers know no such member
    with pytest.raises(errors.InvalidArgument, match="telescope"):
        SandboxType.add_member("TELESCOPE", "microscope")
