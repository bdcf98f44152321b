"""What clients have of MCP servers inside a sandbox besides tools: prompts, resources, log messages, and requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client, MCPError, types
from mcp.client.context import ClientRequestContext

from sandmesh import BaseSandbox, BaseSandboxAsync
from sandmesh.errors import CallFinished, InvalidArgument, WrongState
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.mcp.mcp_world import LIBRARY, connected, server_program, serving, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVER = Path(__file__).with_name("mcp_everything.py")
EVERYTHING = {"command": "python", "args": ["-c", server_program(SERVER)], "env": LIBRARY}
SAMPLING: dict[str, Any] = {"sampling": {}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "said"}, "model": "a model"}
WATCHED = "test://watched-resource"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run one mesh for all tests."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    """Start one sandbox for the tests of the SDK."""
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(mesh: Mesh) -> AsyncGenerator[str]:
    """Serve MCP, with two servers inside that have the same."""
    async with serving(mesh.addresses[0], mcp_servers={"one": EVERYTHING, "two": EVERYTHING}) as served:
        yield served


async def add(box: BaseSandboxAsync, name: str) -> None:
    """Start the server under a name, new if it runs."""
    [server] = await box.add_mcp_servers({"mcpServers": {name: EVERYTHING}}, overwrite=True)
    assert server.state == "READY", server


async def test_a_server_is_sent_requests_for_all_that_is_no_tool(box: BaseSandboxAsync) -> None:
    await add(box, "plain")
    async with await box.connect_mcp() as connection:
        prompts = await connection.request("plain", "prompts/list")
        assert "test_simple_prompt" in {prompt["name"] for prompt in prompts["prompts"]}
        wanted = {"name": "test_prompt_with_arguments", "arguments": {"arg1": "a", "arg2": "grüezi"}}
        got = await connection.request("plain", "prompts/get", wanted)
        assert got["messages"][0]["content"]["text"] == "'a', 'grüezi'"
        large = await connection.request("plain", "resources/read", {"uri": "test://large"})
        assert len(large["contents"][0]["text"]) == 3_000_000
        with pytest.raises(WrongState, match="there is no test://missing") as caught:
            await connection.request("plain", "resources/read", {"uri": "test://missing"})
        assert caught.value.facts["code"] == "-32002"
        for server, method in (("plain", "tools/call"), ("absent", "prompts/list")):
            with pytest.raises(WrongState) as caught:
                await connection.request(server, method)
            assert caught.value.facts["code"] == "-32601"
    with pytest.raises(CallFinished, match="was closed"):
        await connection.request("plain", "ping")


async def test_a_servers_requests_are_refused_with_the_reason_where_no_client_handles_them(
    box: BaseSandboxAsync,
) -> None:
    await add(box, "alone")
    refused = await box.call_tool("alone.test_sampling", {"prompt": "hi"})
    assert refused.is_error
    assert "no MCP client of this sandbox offers sampling" in refused.text
    with pytest.raises(InvalidArgument, match="on_request"):
        await box.connect_mcp(SAMPLING)


async def test_a_servers_requests_go_to_the_handler_and_what_it_raises_refuses_them(box: BaseSandboxAsync) -> None:
    asked: list[tuple[str, str, str]] = []

    async def answer(server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        prompt = params["messages"][0]["content"]["text"]
        asked.append((server, method, prompt))
        if prompt == "refuse":
            raise WrongState("not now", {"code": "-1"})
        return SAID

    async with await box.connect_mcp(SAMPLING, answer):
        await add(box, "asking")
        assert (await box.call_tool("asking.test_sampling", {"prompt": "hi"})).text == "LLM response: said"
        assert asked == [("asking", "sampling/createMessage", "hi")]
        refused = await box.call_tool("asking.test_sampling", {"prompt": "refuse"})
        assert (refused.is_error, refused.text) == (True, "not now")


async def test_a_request_is_given_up_by_who_asked_and_refused_when_its_client_goes(box: BaseSandboxAsync) -> None:
    asked, given_up = asyncio.Event(), asyncio.Event()

    async def answer(server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return SAID

    async with await box.connect_mcp(SAMPLING, answer):
        await add(box, "patient")
        calling = asyncio.create_task(box.call_tool("patient.test_sampling", {"prompt": "hi"}))
        await asyncio.wait_for(asked.wait(), 30)
        await box.remove_mcp_server("patient")
        await asyncio.wait_for(given_up.wait(), 30)
        assert (await calling).is_error
        await add(box, "patient")
        asked.clear()
        calling = asyncio.create_task(box.call_tool("patient.test_sampling", {"prompt": "hi"}))
        await asyncio.wait_for(asked.wait(), 30)
    gone = await calling
    assert gone.is_error
    assert "the MCP client that handled it is gone" in gone.text


async def test_programs_without_a_loop_connect_too(mesh: Mesh) -> None:
    def use() -> list[str]:
        with BaseSandbox(base_url=mesh.addresses[0]) as box:
            box.add_mcp_servers({"mcpServers": {"plain": EVERYTHING}})
            with box.connect_mcp() as connection:
                assert connection.is_open
                return [prompt["name"] for prompt in connection.request("plain", "prompts/list")["prompts"]]

    assert "test_simple_prompt" in await asyncio.to_thread(use)


async def test_prompts_of_several_servers_have_names_of_their_own(url: str) -> None:
    async with connected(url) as client:
        names = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert {"one.test_simple_prompt", "two.test_simple_prompt"} <= names
        got = await client.get_prompt("two.test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert got.messages[0].content == types.TextContent(text="'a', 'b'")
        reference = types.PromptReference(name="one.test_prompt_with_arguments")
        completed = await client.complete(reference, {"name": "arg1", "value": "test"})
        assert completed.completion.values == ["tested", "testing"]
        with pytest.raises(MCPError, match="no prompt 'test_simple_prompt'; there are one"):
            await client.get_prompt("test_simple_prompt")


async def test_resources_of_servers_are_beside_the_files_and_changes_come_to_who_subscribed(url: str) -> None:
    updated: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.put_nowait(str(message.params.uri))

    async with connected(url, message_handler=hear) as client:
        await client.call_tool("run_shell_command", {"command": "echo hi > hi.txt"})
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert {"workspace:///hi.txt", "test://static-text"} <= {*listed}
        forms = {template.uri_template for template in (await client.list_resource_templates()).resource_templates}
        assert forms == {"workspace:///{+path}", "test://template/{id}/data"}
        for uri, part in (("test://template/7/data", '"id": "7"'), ("workspace:///hi.txt", "hi")):
            [contents] = (await client.read_resource(uri)).contents
            assert isinstance(contents, types.TextResourceContents)
            assert part in contents.text
        with pytest.raises(MCPError, match="there is no test://missing"):
            await client.read_resource("test://missing")
        with pytest.raises(MCPError, match="more than one message holds"):
            await client.read_resource("test://large")
        await client.call_tool("one.touch", {})
        subscribed = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=WATCHED))
        await client.session.send_request(subscribed, types.EmptyResult)
        await client.call_tool("one.touch", {})
        assert await asyncio.wait_for(updated.get(), 30) == WATCHED
        unsubscribed = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=WATCHED))
        await client.session.send_request(unsubscribed, types.EmptyResult)
        assert updated.empty()


async def set_level(client: Client, level: types.LoggingLevel) -> None:
    """Set the lowest level of log messages that a client wants."""
    request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
    await client.session.send_request(request, types.EmptyResult)


async def test_log_messages_come_from_the_level_on_that_the_client_set(url: str) -> None:
    heard: list[tuple[str, object]] = []
    three = asyncio.Event()

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        heard.append((params.level, params.data))
        if len(heard) == 3:
            three.set()

    async with connected(url, logging_callback=hear) as client:
        await client.call_tool("run_shell_command", {"command": "true"})
        await set_level(client, "warning")
        await client.call_tool("one.test_tool_with_logging", {})
        await set_level(client, "info")
        await client.call_tool("one.test_tool_with_logging", {})
        await asyncio.wait_for(three.wait(), 30)
    assert heard == [
        ("info", f"Tool {what}") for what in ("execution started", "processing data", "execution completed")
    ]


async def test_servers_sample_and_elicit_from_a_client_that_offers_it_and_from_no_other(url: str) -> None:
    async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        assert set(params.requested_schema["properties"]) == {"username", "email"}
        return types.ElicitResult(action="accept", content={"username": "me"})

    async with connected(url, elicitation_callback=elicit) as client:
        called = await client.call_tool("two.test_elicitation", {"message": "who?"})
        assert text_of(called) == 'action=accept, content={"username": "me"}'
        refused = await client.call_tool("two.test_sampling", {"prompt": "hi"})
        assert refused.is_error
        assert "no MCP client of this sandbox offers sampling" in text_of(refused)


async def test_a_yes_of_the_user_allows_a_refused_host_and_no_host_comes_up_twice(mesh: Mesh) -> None:
    prompts: list[str] = []

    async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        prompts.append(params.message)
        return types.ElicitResult(action="accept", content={"allow": "yes.example" in params.message})

    command = "curl -sS -m 5 -o /dev/null -w '%{http_code}' http://HOST:80/ 2>&1"
    async with serving(mesh.addresses[0], ask=True, network=("other.example",)) as served:
        async with connected(served, elicitation_callback=elicit) as client:

            async def called(host: str) -> str:
                arguments = {"command": command.replace("HOST", host)}
                return text_of(await client.call_tool("run_shell_command", arguments))

            said = [await called(host) for host in ("yes.example", "no.example")]
            # A refusal is heard of soon, at the latest by the next call.
            async with asyncio.timeout(30):
                while len(prompts) < 2:
                    said.append(await called("other.example"))
            assert any("The user allows yes.example from now on" in text for text in said)
            assert not any("allows no.example" in text for text in said)
            again = [await called(host) for host in ("yes.example", "no.example", "no.example")]
            assert ["403" in text for text in again] == [False, True, True]
            assert len(prompts) == 2
            # What shows no forms is not asked, and keeps the refusal.
        async with connected(served) as client:
            refused = await client.call_tool("run_shell_command", {"command": command.replace("HOST", "yes.example")})
            assert "403" in text_of(refused)
    assert sorted("yes.example" in message for message in prompts) == [False, True]
