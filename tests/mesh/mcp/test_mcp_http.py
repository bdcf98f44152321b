"""`sandmeshd mcp`: what MCP clients can do over HTTP, driven by the official client."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client, MCPError, types

from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmeshd.auth.channels import open_channel
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.mcp.mcp_world import connected, delete, ending, named, post, sandbox_of, serving, streaming, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run one mesh for all tests."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(mesh: Mesh) -> AsyncGenerator[str]:
    """Serve MCP, with the tools that manage sandboxes."""
    async with serving(mesh.addresses[0], manage=True) as served:
        yield served


async def test_tools_have_their_own_schemas_and_give_all_that_they_showed(url: str) -> None:
    async with connected(url) as client:
        assert client.protocol_version == "2025-11-25"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["run_shell_command"].input_schema["properties"]["command"]["description"]
        code = f"import base64, IPython.display as d\nd.display(d.Image(base64.b64decode('{PIXEL}')))\n6 * 7"
        shown = await client.call_tool("run_ipython_cell", {"code": code})
        assert not shown.is_error
        [image] = [block for block in shown.content if isinstance(block, types.ImageContent)]
        assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", base64.b64decode(PIXEL))
        assert text_of(shown).endswith("42")
        failed = await client.call_tool("run_shell_command", {"command": "echo out; echo err >&2; exit 3"})
        assert failed.is_error
        assert sorted(str(block.meta and block.meta["sandmesh/stream"]) for block in failed.content) == [
            "returncode",
            "stderr",
            "stdout",
        ]
        assert "exit code 3" in text_of(failed)


async def test_what_the_mesh_refuses_is_a_result_that_says_what_to_do(url: str) -> None:
    async with connected(url) as client:
        refused = await client.call_tool("run_shell_command", {"comand": "ls"})
        assert refused.is_error
        assert "comand: Unexpected keyword argument" in text_of(refused)
        assert refused.meta is not None
        assert refused.meta["sandmesh/error"]["reason"] == "INVALID_ARGUMENT"
        with pytest.raises(MCPError, match="no tool 'no_such_tool'; it has") as caught:
            await client.call_tool("no_such_tool", {})
        assert caught.value.code == types.INVALID_PARAMS


async def test_what_a_model_is_offered_ends_by_itself(url: str) -> None:
    async with connected(url) as client:
        offered = {tool.name for tool in (await client.list_tools()).tools}
        for name in ("watch_tools", "start_process", "wait_for_port"):
            assert name not in offered
            with pytest.raises(MCPError, match="not offered"):
                await client.call_tool(name, {})


async def test_output_comes_as_progress_while_the_tool_runs(url: str) -> None:
    heard: list[tuple[float, str | None]] = []
    first = asyncio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))
        first.set()

    async with connected(url) as client:
        command = "echo one; until [ -e go ]; do sleep 0.02; done; echo two"
        running = asyncio.create_task(
            client.call_tool("run_shell_command", {"command": command}, progress_callback=hear)
        )
        await asyncio.wait_for(first.wait(), 30)
        assert heard == [(4.0, "one\n")]
        await client.call_tool("run_shell_command", {"command": "touch go"})
        assert "one\ntwo\n" in text_of(await running)
        assert heard[-1] == (8.0, "two\n")


async def test_a_cancelled_call_ends_with_all_its_processes(url: str) -> None:
    started = asyncio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        started.set()

    async with connected(url) as client:
        command = "sleep 1000 & echo $! > pid; echo up; wait"
        running = asyncio.create_task(
            client.call_tool("run_shell_command", {"command": command}, progress_callback=hear)
        )
        await asyncio.wait_for(started.wait(), 30)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        called = {"command": "while kill -0 $(cat pid); do sleep 0.02; done 2>/dev/null; echo gone", "timeout": 30}
        assert "gone" in text_of(await client.call_tool("run_shell_command", called))


async def test_files_of_the_workspace_are_resources(url: str) -> None:
    updated: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.put_nowait(message.params.uri)

    async with connected(url, message_handler=hear) as client:
        assert (await client.list_resources()).resources == []
        made = "mkdir -p 'a b'; echo text > 'a b/notes.txt'; printf '\\377\\0' > bytes.bin; ln -s /etc/hostname link"
        await client.call_tool("run_shell_command", {"command": made})
        listed = {resource.name: resource for resource in (await client.list_resources()).resources}
        assert listed.keys() == {"a b/notes.txt", "bytes.bin"}
        notes = listed["a b/notes.txt"].uri
        assert notes == "workspace:///a%20b/notes.txt"
        [text] = (await client.read_resource(notes)).contents
        assert isinstance(text, types.TextResourceContents)
        assert (text.text, text.mime_type) == ("text\n", "text/plain")
        [blob] = (await client.read_resource("workspace:///bytes.bin")).contents
        assert isinstance(blob, types.BlobResourceContents)
        assert base64.b64decode(blob.blob) == b"\xff\0"
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "workspace:///{+path}"
        # The library's own method warns of a later version of the protocol.
        wanted = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=notes))
        await client.session.send_request(wanted, types.EmptyResult)
        await client.call_tool("run_shell_command", {"command": "echo more > other; echo more > 'a b/notes.txt'"})
        assert await asyncio.wait_for(updated.get(), 30) == notes


async def test_a_resource_that_is_none_is_refused(url: str) -> None:
    async with connected(url) as client:
        await client.call_tool("run_shell_command", {"command": "ln -s /etc/passwd link; truncate -s 17M large"})
        for uri, said in (
            ("workspace:///../../etc/passwd", "outside of what"),
            ("workspace:////etc/passwd", "outside of what"),
            ("workspace:///link", "outside of what"),
            ("workspace:///not-there", "No such file"),
            ("workspace:///large", "too large"),
            ("file:///etc/passwd", "is not a file of the workspace"),
        ):
            with pytest.raises(MCPError, match=said):
                await client.read_resource(uri)


async def test_two_clients_at_once_are_kept_apart_and_their_sandboxes_end_with_them(mesh: Mesh, url: str) -> None:
    async with AsyncExitStack() as watched, connected(url) as ada, connected(url) as bob:
        boxes = [await sandbox_of(ada), await sandbox_of(bob)]
        await bob.call_tool("run_ipython_cell", {"code": "secret = 1"})
        assert "NameError" in text_of(await ada.call_tool("run_ipython_cell", {"code": "secret"}))
        for one in boxes:
            await watched.enter_async_context(ending(mesh.addresses[0], one))


async def test_a_session_whose_client_is_away_ends_after_a_time_with_its_sandbox(mesh: Mesh) -> None:
    async with serving(mesh.addresses[0], {"idle_timeout": 4.0}, manage=True) as url:
        session = named(await post(url, {}))
        async with AsyncExitStack() as watched, streaming(url, session):
            # A stream that is open keeps the session; the time begins when it closes.
            await post(url, session, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            request = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "new_sandbox"}}
            made = await post(url, session, request)
            [sandbox_id] = set(re.findall(r"sb_[a-z0-9]{26}", made.text))
            await watched.enter_async_context(ending(mesh.addresses[0], sandbox_id))
        assert (await delete(url, session)).status_code == 404


async def test_a_named_session_stays_for_the_next_client(mesh: Mesh) -> None:
    async with serving(mesh.addresses[0], session="work", user="ada") as url:
        async with connected(url) as client:
            await client.call_tool("run_ipython_cell", {"code": "kept = 41"})
        async with connected(url) as client:
            assert text_of(await client.call_tool("run_ipython_cell", {"code": "kept + 1"})) == "42"


async def test_sandboxes_are_made_switched_and_ended_by_tools_where_these_were_asked_for(mesh: Mesh, url: str) -> None:
    changed = asyncio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with connected(url, message_handler=hear) as client:
        first = await sandbox_of(client)
        changed.clear()
        await client.call_tool("new_sandbox", {"sandbox_type": "filesystem"})
        await asyncio.wait_for(changed.wait(), 30)
        assert "read_file" in {tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools}
        second = await sandbox_of(client)
        assert second != first
        await client.call_tool("switch_sandbox", {"sandbox_id": first})
        assert await sandbox_of(client) == first
        async with ending(mesh.addresses[0], second):
            await client.call_tool("end_sandbox", {"sandbox_id": second})
        await _pause_and_fork(client, first)
        missing = await client.call_tool("switch_sandbox", {"sandbox_id": "sb_" + "a" * 26})
        assert missing.is_error
        assert "SANDBOX_NOT_FOUND" in text_of(missing)
    async with serving(mesh.addresses[0]) as plain, connected(plain) as client:
        assert "new_sandbox" not in {tool.name for tool in (await client.list_tools()).tools}


async def _pause_and_fork(client: Client, first: str) -> None:
    """Pause a sandbox, which the next call resumes, and fork it into one that goes on apart."""
    await client.call_tool("run_ipython_cell", {"code": "x = 41"})
    paused: Any = (await client.call_tool("pause_sandbox", {"sandbox_id": first})).structured_content
    assert [(one["sandbox_id"], one["state"]) for one in paused["sandboxes"]] == [(first, "paused")]
    resumed: Any = (await client.call_tool("resume_sandbox", {"sandbox_id": first})).structured_content
    assert resumed["sandboxes"][0]["state"] == "ready"
    await client.call_tool("pause_sandbox", {"sandbox_id": first})
    assert text_of(await client.call_tool("run_ipython_cell", {"code": "x = x + 1; x"})) == "42"
    forked: Any = (await client.call_tool("fork_sandbox", {"sandbox_id": first})).structured_content
    assert [one["in_use"] for one in forked["sandboxes"]] == [True, False]
    [fork] = forked["forks"]
    await client.call_tool("switch_sandbox", {"sandbox_id": fork})
    assert text_of(await client.call_tool("run_ipython_cell", {"code": "x = x + 1; x"})) == "43"
    await client.call_tool("end_sandbox", {"sandbox_id": fork})
    await client.call_tool("switch_sandbox", {"sandbox_id": first})
    assert text_of(await client.call_tool("run_ipython_cell", {"code": "x"})) == "42"
    refused = await client.call_tool("fork_sandbox", {"sandbox_id": first, "count": 9})
    assert refused.is_error
    assert "less than or equal to 8" in text_of(refused)


async def test_a_lost_sandbox_is_told_of_and_replaced(mesh: Mesh, url: str) -> None:
    async with connected(url) as client:
        lost = await sandbox_of(client)
        async with ending(mesh.addresses[0], lost):
            await release(mesh, lost)
        called = await client.call_tool("run_shell_command", {"command": "true"})
        assert called.is_error
        assert "the next call gets a new one" in text_of(called)
        assert await sandbox_of(client) != lost


async def release(mesh: Mesh, sandbox_id: str) -> None:
    """End a sandbox as its operator may."""
    async with open_channel(mesh.addresses[0]) as channel:
        stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
        record = (await stub.GetSandbox(sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox_id))).sandbox
        token = record.lease.fencing_token
        await stub.ReleaseSandbox(sandbox_pb2.ReleaseSandboxRequest(sandbox_id=sandbox_id, fencing_token=token))
