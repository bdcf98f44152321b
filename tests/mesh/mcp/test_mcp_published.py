"""Published MCP servers in a real sandbox, started as their pages say: by uvx and by npx, over pipes and over HTTP.

They are downloaded once, into the one sandbox of this file, from the package indexes that pip and npm of this machine
are configured with: that a sandbox can fetch and start them is what is shown, so nothing is brought in from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, McpServer, Progress, Result
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

# An index may be slow, or break off: nothing here is measured against a clock that it could stop.
SECONDS = 240
ATTEMPTS = 3
PATIENT = {
    "UV_HTTP_TIMEOUT": "120",
    "UV_HTTP_RETRIES": "8",
    "npm_config_fetch_retries": "8",
    "npm_config_fetch_timeout": "120000",
}
EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
SERVERS: dict[str, dict[str, Any]] = {
    "time": {"command": "uvx", "args": ["mcp-server-time@2026.10.19"]},
    "git": {"command": "uvx", "args": ["mcp-server-git@2026.10.19"]},
    "everything": {"command": "npx", "args": ["-y", EVERYTHING]},
    "broken": {"command": "uvx", "args": ["--from", "mcp-server-time==2026.10.19", "no-such-program"]},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncGenerator[BaseSandboxAsync]:
    """Yield a sandbox that may download packages, with the servers, one of them broken."""
    async with run_mesh() as mesh, BaseSandboxAsync(base_url=mesh.addresses[0], network="packages") as opened:
        servers = await add(opened, SERVERS)
        for _ in range(ATTEMPTS):
            # What an index did not give is asked for again.
            missing = [server.name for server in servers if not is_as_meant(server)]
            servers = await add(opened, {name: SERVERS[name] for name in missing}) if missing else []
        assert not servers, servers
        yield opened


def is_as_meant(server: McpServer) -> bool:
    """Whether a server works, or is the one that must not, for its own reason."""
    return server.state == "READY" or any("no-such-program" in line for line in server.log)


async def add(box: BaseSandboxAsync, servers: dict[str, dict[str, Any]]) -> list[McpServer]:
    """Add servers, each in place of one of the same name, with patience."""
    patient = {name: {"env": PATIENT, "startup_timeout": SECONDS, **entry} for name, entry in servers.items()}
    return await box.add_mcp_servers({"mcpServers": patient}, overwrite=True)


async def found(box: BaseSandboxAsync, name: str) -> McpServer:
    """Return what is known of a server."""
    (server,) = [server for server in await box.list_mcp_servers() if server.name == name]
    return server


async def test_a_broken_server_beside_the_others_says_why(box: BaseSandboxAsync) -> None:
    broken = await found(box, "broken")
    assert broken.state == "FAILED"
    assert "exit code" in broken.error
    assert any("no-such-program" in line for line in broken.log)
    groups = await box.list_tools()
    assert groups.keys() >= {"generic", "time", "git", "everything"}
    assert "broken" not in groups
    again = await box.call_tool("broken.get_current_time", {"timezone": "UTC"})
    assert again.is_error
    assert "no-such-program" in again.text


async def test_a_server_by_uvx_answers_and_refuses(box: BaseSandboxAsync) -> None:
    answered = await box.call_tool("get_current_time", {"timezone": "Asia/Kathmandu"})
    assert not answered.is_error
    assert "+05:45" in answered.text
    wrong = await box.call_tool("time.get_current_time", {"timezone": "Atlantis/Center"})
    assert wrong.is_error
    assert "Atlantis/Center" in wrong.text


async def test_a_server_by_uvx_that_is_killed_starts_again_and_leaves_nothing(box: BaseSandboxAsync) -> None:
    before = await found(box, "time")
    assert (await box.run_shell_command(f"kill -9 {before.pid}")).exit_code == 0
    async with asyncio.timeout(SECONDS):
        while (await found(box, "time")).state != "IDLE":
            pass
    assert "signal 9" in (await found(box, "time")).error
    # The program that uvx had started ends with it, though nobody told that one.
    await box.run_shell_command("while pgrep -f bin/mcp-server-tim[e]; do sleep 0.05; done", timeout=SECONDS)
    assert "+01:00" in (await box.call_tool("get_current_time", {"timezone": "Africa/Lagos"})).text
    after = await found(box, "time")
    assert (after.state, after.starts) == ("READY", before.starts + 1)
    assert after.pid != before.pid


async def test_a_server_by_uvx_works_on_the_files_of_the_workspace(box: BaseSandboxAsync) -> None:
    author = "git config user.email a@example.com && git config user.name A"
    made = await box.run_shell_command(f"git init -q repo && cd repo && {author} && echo 1 > file && git add file")
    assert not made.is_error, made.stderr
    where = {"repo_path": "/workspace/repo"}
    assert "new file" in (await box.call_tool("git.git_status", where)).text
    assert "committed" in (await box.call_tool("git.git_commit", {**where, "message": "one"})).text
    assert (await box.run_shell_command("git -C repo log --format=%s")).stdout == "one\n"


async def test_a_server_by_npx_gives_all_kinds_of_content(box: BaseSandboxAsync) -> None:
    assert (await box.call_tool("everything.echo", {"message": "hello"})).text == "Echo: hello"
    (image,) = (await box.call_tool("get-tiny-image")).images
    assert image.startswith(b"\x89PNG")
    weather = await box.call_tool("get-structured-content", {"location": "New York"})
    assert weather.structured is not None
    assert "temperature" in weather.structured
    reference = await box.call_tool("get-resource-reference", {"resourceType": "Text", "resourceId": 1})
    assert "resource" in [block["type"] for block in reference.content]
    links = await box.call_tool("get-resource-links", {"count": 2})
    assert [block["type"] for block in links.content].count("resource_link") == 2
    assert (await box.call_tool("get-sum", {"a": "no number"})).is_error


async def test_a_server_by_npx_tells_its_progress_and_hears_of_a_cancelled_call(box: BaseSandboxAsync) -> None:
    # What is said to the server is kept on the way, by a program that only passes it on.
    entry = {"command": "sh", "args": ["-c", f"tee asked.jsonl | npx -y {EVERYTHING}"]}
    (server,) = await add(box, {"heard": entry})
    assert server.state == "READY", server
    events = [event async for event in box.stream("heard.trigger-long-running-operation", duration=0.2, steps=4)]
    assert [event.progress for event in events if isinstance(event, Progress)][-1] == 4
    assert isinstance(events[-1], Result)
    async with box.stream("heard.trigger-long-running-operation", duration=600, steps=6000) as running:
        async for event in running:
            if isinstance(event, Progress):
                break
    answered = "until grep -q notifications/cancelled asked.jsonl; do sleep 0.05; done"
    assert (await box.run_shell_command(answered, timeout=60)).exit_code == 0
    assert (await box.call_tool("heard.echo", {"message": "still here"})).text == "Echo: still here"
    await box.remove_mcp_server("heard")


async def test_a_server_by_npx_that_says_its_tools_changed_is_listed_again(box: BaseSandboxAsync) -> None:
    async with box.watch_tools() as changes, asyncio.timeout(SECONDS):
        for _ in await box.list_mcp_servers():
            await anext(changes)
        (server,) = await add(box, {"changing": SERVERS["everything"]})
        # It says so once it knows what its client can do, after its tools were listed for the first time.
        listed = [await anext(changes), await anext(changes)]
        assert [change.server for change in listed] == ["changing", "changing"]
        assert "simulate-research-query" in listed[1].tools
        assert (server.state, (await found(box, "changing")).starts) == ("READY", 1)
    await box.remove_mcp_server("changing")


@pytest.mark.parametrize(("name", "path", "kind"), [("streamableHttp", "mcp", "http"), ("sse", "sse", "sse")])
async def test_a_server_by_npx_that_listens_inside_is_reached_by_its_url(
    box: BaseSandboxAsync, name: str, path: str, kind: str
) -> None:
    port = 3001 if kind == "http" else 3002
    process = await box.processes.start(["npx", "-y", EVERYTHING, name], env={**PATIENT, "PORT": str(port)})
    await process.wait_for_port(port, timeout=SECONDS)
    (server,) = await box.add_mcp_servers(
        {"mcpServers": {kind: {"url": f"http://127.0.0.1:{port}/{path}", "type": kind}}}
    )
    assert (server.state, server.transport) == ("READY", kind), server
    assert (await box.call_tool(f"{kind}.echo", {"message": "hi"})).text == "Echo: hi"
    events = [event async for event in box.stream(f"{kind}.trigger-long-running-operation", duration=0.2, steps=2)]
    assert [event.progress for event in events if isinstance(event, Progress)][-1] == 2
    await process.kill()
    await process.wait(SECONDS)
    assert (await box.call_tool(f"{kind}.echo", {"message": "hi"})).is_error
    await box.remove_mcp_server(kind)


async def test_removed_servers_leave_no_process(box: BaseSandboxAsync) -> None:
    for server in await box.list_mcp_servers():
        await box.remove_mcp_server(server.name)
    left = "while pgrep -f 'mcp[-]server'; do sleep 0.1; done"
    assert (await box.run_shell_command(left, timeout=60)).exit_code == 0
    assert await box.list_mcp_servers() == []
