"""What a model is sent for one call, by each way to it, and where the whole is."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from mcp import types

from sandmesh import BaseSandbox, BaseSandboxAsync, errors
from sandmesh.replies import REPLY_CHARACTERS
from sandmesh.tools import run_ipython_cell, run_shell_command
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.mcp.mcp_world import connected, serving, text_of

NOTE = re.compile(r"\[(\d+) characters left out; all (\d+) characters are in (\S+)\]")
PRINTS = "print('a' * 100_000 + 'b' * 100_000)"


def called(name: str = "run_ipython_cell", **arguments: object) -> dict[str, Any]:
    """Build a model's call in the format of chat completions."""
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def bounded_by(characters: int) -> Any:
    """Build the `_meta` of a call that bounds its reply."""
    return {"sandmesh/replyCharacters": characters}


def noted(text: str) -> re.Match[str]:
    """Return the note of what was left out."""
    found = NOTE.search(text)
    assert found, text[-500:]
    return found


async def test_a_reply_is_bounded_and_names_the_file_that_has_all_of_it(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        tools = await box.as_tools("openai")
        content = (await tools.reply(called(code=PRINTS)))["content"]
        assert len(content) < REPLY_CHARACTERS + 200
        assert content.startswith("a" * 8_000)
        assert content.rstrip("\n").endswith("b" * 7_990)
        note = noted(content)
        assert (int(note[1]), int(note[2])) == (184_001, 200_001)
        assert await box.fs.read(note[3]) == "a" * 100_000 + "b" * 100_000 + "\n"
        counted = await tools.reply(called("run_shell_command", command=f"wc -c < {note[3]}"))
        assert counted["content"].startswith("200001")
        assert (await tools.dispatch(called(code=PRINTS))).text == "a" * 100_000 + "b" * 100_000 + "\n"


async def test_the_bound_is_the_calls_the_toolkits_or_the_boxs(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], reply_characters=1000) as box:
        own, wide = await box.as_tools("openai"), await box.as_tools("openai", reply_characters=300_000)
        lengths = [
            len((await own.reply(called(code=PRINTS)))["content"]),
            len((await own.reply(called(code=PRINTS), reply_characters=50))["content"]),
            len((await wide.reply(called(code=PRINTS)))["content"]),
        ]
        assert 1000 < lengths[0] < 1200
        assert 50 < lengths[1] < 250
        assert lengths[2] == 200_000
        for refused in (0, -5):
            with pytest.raises(errors.InvalidArgument, match="above 0"):
                await own.reply(called(code="open('ran', 'w')"), reply_characters=refused)
            with pytest.raises(errors.InvalidArgument, match="above 0"):
                await box.as_tools("openai", reply_characters=refused)
        assert not await box.fs.exists("ran")
    with pytest.raises(errors.InvalidArgument, match="above 0"):
        BaseSandboxAsync(base_url=mesh.addresses[0], reply_characters=0)


@pytest.mark.parametrize("form", ["mcp", "openai", "openai-responses", "anthropic"])
async def test_every_format_is_bounded_for_output_errors_and_a_models_mistakes(mesh: Mesh, form: str) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        tools = await box.as_tools(form)
        for call in (
            called(code="for n in range(300_000): print(n)"),
            called(code="'y' * 10_000_000"),
            called(code="raise ValueError('z' * 10_000_000)"),
            called(code="import sys; print('x' * 90_000); print('y' * 90_000, file=sys.stderr); 1 / 0"),
            called(code="from IPython.display import HTML; HTML('<b>' * 70_000)"),
            called("run_shell_command", command="seq 1000000; exit 3"),
            called("no_such_tool" * 10_000),
        ):
            reply = await tools.reply(call)
            assert len(json.dumps(reply)) < 2 * REPLY_CHARACTERS
        assert "left out" in json.dumps(await tools.reply(called("run_shell_command", command="seq 1000000; exit 3")))


async def test_where_no_file_can_be_written_the_note_names_none_and_the_reply_comes(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_shell_command("touch .replies")
        content = (await (await box.as_tools("openai")).reply(called(code=PRINTS)))["content"]
        assert "[184001 characters left out of 200001 characters]" in content


async def test_what_a_framework_calls_as_a_function_is_bounded_too(mesh: Mesh) -> None:
    await asyncio.to_thread(_call_functions, mesh.addresses[0])


def _call_functions(address: str) -> None:
    with BaseSandbox(base_url=address) as box:
        cell, shell = run_ipython_cell.bind(box), run_shell_command.bind(box)
        short = cell.make_function()(code=PRINTS)
        assert len(short.text) < REPLY_CHARACTERS + 200
        assert len(box.fs.read(noted(short.text)[3])) == 200_001
        assert len(shell.make_function(reply_characters=100)(command="seq 100000").text) < 300
        assert len(cell(code=PRINTS).text) == 200_001
        with pytest.raises(errors.InvalidArgument, match="above 0"):
            cell.make_function(reply_characters=0)


async def test_an_async_box_bounds_replies_and_keeps_few_of_the_files(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], reply_characters=10) as box:
        tools = await box.as_tools("anthropic")
        for _ in range(45):
            await tools.reply({"id": "c", "name": "run_ipython_cell", "input": {"code": "print('x' * 100)"}})
        assert len(await box.fs.list(".replies")) == 41  # with .gitignore


async def test_a_mcp_client_gets_a_bounded_reply_with_the_file_and_links_to_all_of_it() -> None:
    async with run_mesh() as mesh, serving(mesh.addresses[0]) as url, connected(url) as client:
        result = await client.call_tool("run_ipython_cell", {"code": PRINTS})
        assert len(text_of(result)) < REPLY_CHARACTERS + 200
        path = noted(text_of(result))[3]
        read = await client.call_tool("run_shell_command", {"command": f"wc -c < {path}"})
        assert text_of(read).startswith("200001")
        [link] = [block for block in result.content if isinstance(block, types.ResourceLink)]
        [part] = (await client.read_resource(link.uri)).contents
        assert isinstance(part, types.TextResourceContents)
        assert len(part.text) == 200_001
        whole = await client.call_tool("run_ipython_cell", {"code": PRINTS}, meta=bounded_by(250_000))
        assert len(text_of(whole)) == 200_001
        refused = await client.call_tool("run_ipython_cell", {"code": "1"}, meta=bounded_by(0))
        assert refused.is_error
        assert "above 0" in text_of(refused)
