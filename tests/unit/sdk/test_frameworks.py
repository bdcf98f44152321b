"""Tools in frameworks for agents: what a model gets, and the parameters that functions show."""

from __future__ import annotations

import asyncio
import base64
import copy
import inspect
import json
import pickle
from typing import Any, Literal, cast

from agents import FunctionTool as AgentsTool
from agents.tool import ToolOutputImage, ToolOutputText
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from pydantic_ai import Agent, BinaryContent, ModelMessage, ToolReturnPart
from pydantic_ai.models.test import TestModel

from sandmesh import BaseSandbox, BaseSandboxAsync
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.integrations import langchain, openai_agents, pydantic_ai
from sandmesh.toolkits.functions import ModelText
from sandmesh.tools import browser_click, edit_file, function_tool, run_ipython_cell, run_shell_command

from .conftest import World
from .stand_in import Served

PNG = b"\x89PNG\r\n\x1a\n"
PLOT = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
CALL = {"type": "tool_call", "id": "c1", "name": "run_ipython_cell", "args": {"code": "plot"}}


async def plot(call: Served) -> None:
    """Answer with text and an image, or fail with them."""
    blocks = [{"type": "text", "text": "a plot"}, PLOT]
    shown = [{"content": pb.Content(json=json.dumps(block).encode())} for block in blocks]
    ended = pb.Result(reason=pb.END_REASON_EXITED, is_error=b"fail" in call.arguments)
    await call.send_all({"started": pb.Started(pid=7)}, *shown, {"result": ended})


def test_langchain_gets_text_and_images(threaded_world: World) -> None:
    threaded_world.mesh.tools["run_ipython_cell"] = plot
    with BaseSandbox(base_url=threaded_world.address) as box:
        (tool,) = langchain.as_tools(box)
        message = tool.invoke(CALL)
        failed = tool.invoke({**CALL, "args": {"code": "fail"}})
    image = {"type": "image", "base64": PLOT["data"], "mime_type": "image/png"}
    assert message.content == [{"type": "text", "text": "a plot"}, image]
    assert (message.status, failed.status) == ("success", "error")
    assert failed.content == message.content


async def test_langchain_reports_a_call_that_does_not_fit_to_the_model(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        (tool,) = await langchain.as_tools(box)
        del world.mesh.tools["run_ipython_cell"]
        message = await tool.ainvoke(CALL)
    assert isinstance(message, ToolMessage)
    assert message.status == "error"
    assert "run_ipython_cell" in message.text


def returned(messages: list[ModelMessage]) -> Any:
    """Return what the only tool returned."""
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    (one,) = parts
    return one.content


def test_pydantic_ai_gets_text_and_images(threaded_world: World) -> None:
    threaded_world.mesh.tools["run_ipython_cell"] = plot
    with BaseSandbox(base_url=threaded_world.address) as box:
        result = asyncio.run(Agent(TestModel(), tools=pydantic_ai.as_tools(box)).run("plot it"))
    assert returned(result.all_messages()) == ["a plot", BinaryContent(PNG, media_type="image/png")]


async def test_pydantic_ai_gets_them_of_an_async_box_too(world: World) -> None:
    world.mesh.tools["run_ipython_cell"] = plot
    async with BaseSandboxAsync(base_url=world.address) as box:
        result = await Agent(TestModel(), tools=await pydantic_ai.as_tools(box)).run("plot it")
    assert returned(result.all_messages()) == ["a plot", BinaryContent(PNG, media_type="image/png")]


async def test_the_agents_sdk_gets_text_and_images(world: World) -> None:
    world.mesh.tools["run_ipython_cell"] = plot
    async with BaseSandboxAsync(base_url=world.address) as box:
        (tool,) = await openai_agents.as_tools(box)
        assert isinstance(tool, AgentsTool)
        output = await tool.on_invoke_tool(cast("Any", None), '{"code": "plot"}')
        mistake = await tool.on_invoke_tool(cast("Any", None), '{"code": ')
    url = f"data:image/png;base64,{PLOT['data']}"
    assert output == [ToolOutputText(text="a plot"), ToolOutputImage(image_url=url)]
    assert "not JSON" in mistake


async def test_a_function_of_an_async_box_is_a_coroutine_function(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        function = run_ipython_cell.bind(box).make_function()
        assert inspect.iscoroutinefunction(function)
        assert await function(code="1+1") == "2"
    assert not inspect.iscoroutinefunction(run_ipython_cell.make_function())


async def test_a_function_of_a_coroutine_function_is_one() -> None:
    @function_tool()
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    function = double.make_function()
    assert inspect.iscoroutinefunction(function)
    assert await function(number=2) == "4"


def test_a_function_returns_text_for_a_model_with_the_result(threaded_world: World) -> None:
    threaded_world.mesh.tools["run_ipython_cell"] = plot
    with BaseSandbox(base_url=threaded_world.address) as box:
        tool = run_ipython_cell.bind(box)
        text = tool.make_function()("plot")
        images = tool.make_function(convert=lambda result: result.images)("plot")
    assert str(text) == "a plot\n[image image/png]"
    assert (text.images, text.is_error, text.result["isError"]) == ([PNG], False, False)
    assert images == [PNG]
    for twin in (copy.deepcopy(text), pickle.loads(pickle.dumps(text))):  # noqa: S301 - what this test wrote
        assert isinstance(twin, ModelText)
        assert (twin, twin.result) == (text, text.result)


def test_a_function_has_the_types_of_its_schema() -> None:
    shell = inspect.signature(run_shell_command.make_function()).parameters
    assert shell["timeout"].annotation == float | None
    assert shell["env"].annotation == dict[str, str] | None
    click = inspect.signature(browser_click.make_function()).parameters
    assert click["button"].annotation == Literal["left", "right", "middle"]
    assert inspect.signature(edit_file.make_function()).parameters["edits"].annotation == list[dict[str, Any]]


def test_langchain_reads_optional_parameters_and_descriptions_from_a_function(threaded_world: World) -> None:
    threaded_world.mesh.tools["run_shell_command"] = threaded_world.mesh.tools["run_ipython_cell"]
    with BaseSandbox(base_url=threaded_world.address) as box:
        tool = StructuredTool.from_function(run_shell_command.bind(box).make_function(), parse_docstring=True)
        assert tool.args["timeout"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
        assert tool.args["command"]["description"].startswith("The command line")
        assert json.loads(tool.invoke({"command": "true", "timeout": None})) == {"command": "true"}
