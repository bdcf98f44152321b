"""MCP servers inside a sandbox: their tools, how they fail, die, start again and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, McpServer, Progress, Result, ToolsChanged
from sandmesh.errors import InvalidArgument, ToolNotFound
from tests.mesh.conftest import run_mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROGRAM = Path(__file__).with_name("mcp_program.py")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncGenerator[BaseSandboxAsync]:
    """Start one sandbox for all tests, with a server `well` that each finds working."""
    async with run_mesh() as mesh, BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        await opened.fs.write_from_path(PROGRAM, "server.py")
        (server,) = await add(opened, well=stdio())
        assert server.state == "READY", server
        yield opened


def stdio(*args: str, **more: Any) -> dict[str, Any]:
    """Return the entry of the test's server."""
    return {"command": "python", "args": ["server.py", *args], **more}


async def add(box: BaseSandboxAsync, **servers: dict[str, Any]) -> list[McpServer]:
    """Add servers, each in place of one of the same name."""
    return await box.add_mcp_servers({"mcpServers": servers}, overwrite=True)


async def found(box: BaseSandboxAsync, name: str) -> McpServer:
    """Return the description of a server."""
    (server,) = [server for server in await box.list_mcp_servers() if server.name == name]
    return server


async def test_a_name_that_clashes_is_refused_alone_and_the_other_servers_of_the_config_start(
    box: BaseSandboxAsync,
) -> None:
    servers = {server.name: server for server in await add(box, generic=stdio(), fs=stdio(), filesystem=stdio())}
    for name in ("generic", "fs"):
        assert servers[name].state == "FAILED"
        assert "choose another name" in servers[name].error
    assert servers["filesystem"].state == "READY", "a base sandbox has no tools of that group"
    assert (await box.call_tool("filesystem.echo", {"text": "here"})).text == "here"
    for name in servers:
        await box.remove_mcp_server(name)


async def test_the_tools_of_a_server_are_the_sandboxs_own(box: BaseSandboxAsync) -> None:
    listed = await box.list_tools()
    assert {"generic", "well"} <= listed.keys()
    assert listed["well"]["echo"]["title"] == "Echo"
    assert listed["well"]["echo"]["annotations"] == {"readOnlyHint": True}
    assert listed["well"]["echo"]["output_schema"]["type"] == "object"
    function = listed["well"]["echo"]["json_schema"]["function"]
    assert (function["description"], function["parameters"]["required"]) == ("Say it again.", ["text"])
    assert await box.list_tools("well") == {"well": listed["well"]}
    for name in ("echo", "well.echo"):
        said = await box.call_tool(name, {"text": "grüezi"})
        assert (said.text, said.structured, said.is_error) == ("grüezi", {"said": "grüezi"}, False)


async def test_what_a_tool_or_its_server_says_against_a_call_is_a_result(box: BaseSandboxAsync) -> None:
    failed, refused = await box.call_tool("fail"), await box.call_tool("refuse")
    assert (failed.text, failed.is_error) == ("that went wrong", True)
    assert refused.is_error
    assert "no such thing (JSON-RPC error -32602)" in refused.stderr
    with pytest.raises(ToolNotFound, match=r"well\.echo"):
        await box.call_tool("nothing")
    assert "has no tool 'nothing' now; it has echo" in (await box.call_tool("well.nothing")).stderr


async def test_progress_is_told_and_a_cancelled_call_is_cancelled_in_the_server(box: BaseSandboxAsync) -> None:
    progress: list[Progress] = []
    async with box.stream("hang") as events:
        async for event in events:
            if isinstance(event, Progress):
                progress.append(event)
                if event.progress == 2:
                    break
    assert progress[-1] == Progress(2.0, 4.0, "step 2")
    assert (await box.call_tool("cancelled")).text == "1 cancelled"


async def test_a_change_of_the_tools_is_told_to_who_follows_them(box: BaseSandboxAsync) -> None:
    await add(box, growing=stdio())
    async with box.watch_tools() as changes:
        before = [await anext(changes) for _ in await box.list_mcp_servers()]
        assert {change.server for change in before} >= {"well", "growing"}
        await box.call_tool("growing.grow", {"name": "new"})
        grown = await anext(changes)
        assert (grown.server, grown.tools[-1]) == ("growing", "new")
        assert "new" in (await box.list_tools("growing"))["growing"]
        await box.remove_mcp_server("growing")
        assert await anext(changes) == ToolsChanged("growing", (), removed=True)
    assert "growing" not in await box.list_tools()


async def test_servers_that_do_not_start_say_why_and_disturb_no_other(box: BaseSandboxAsync) -> None:
    broken = {
        "missing": {"command": "no-such-program"},
        "nowhere": stdio(cwd="no/such/directory"),
        "exits": {"command": "sh", "args": ["-c", "echo cannot go on >&2; exit 4"]},
        "mute": stdio("mute", startup_timeout=1),
        "garbage": stdio("garbage"),
        "listless": stdio("no list"),
        "closed": {"url": "http://127.0.0.1:9/mcp"},
        "closed-sse": {"url": "http://127.0.0.1:9/sse", "type": "sse"},
        "beside": stdio(),
    }
    servers = {server.name: server for server in await add(box, **broken)}
    states = {name: server.state for name, server in servers.items()}
    assert states == {**dict.fromkeys(broken, "FAILED"), "listless": "READY", "beside": "READY"}
    errors = {name: server.error for name, server in servers.items()}
    assert "No such file or directory" in errors["missing"]
    assert "working directory cannot be entered" in errors["nowhere"]
    assert "exit code 4" in errors["exits"]
    assert servers["exits"].log == ("cannot go on",)
    assert "not ready within 1 s" in errors["mute"]
    assert "not messages to its standard output: 'garbage garbage" in errors["garbage"]
    assert "ConnectError" in errors["closed"]
    assert "ConnectError" in errors["closed-sse"]
    assert "not a list" in servers["listless"].problems[0]
    assert (await box.call_tool("beside.echo", {"text": "a"})).text == "a"
    again = await box.call_tool("exits.anything")
    assert again.is_error
    assert again.stderr.endswith("Its last lines of standard error:\ncannot go on")
    for name in broken:
        await box.remove_mcp_server(name)


async def test_a_tool_whose_schema_is_none_is_left_out_and_named(box: BaseSandboxAsync) -> None:
    (server,) = await add(box, schemas=stdio("schemas"))
    assert server.state == "READY"
    assert set(server.tools) == set((await found(box, "well")).tools)
    assert [problem.partition(":")[0] for problem in server.problems] == [
        "tool 'list' was left out",
        "tool 'none' was left out",
        "a tool was left out",
        "tool 'echo' was listed twice",
        "a tool is not an object",
        "tool 'array' was left out",
    ]
    await box.remove_mcp_server("schemas")


async def test_noise_of_a_server_is_told_and_holds_up_nobody(box: BaseSandboxAsync) -> None:
    await add(box, noisy=stdio("noisy"))
    assert (await box.call_tool("noisy.echo", {"text": "still here"})).text == "still here"
    async with asyncio.timeout(60):
        # Its two kinds of output are read one beside the other.
        while not "".join((server := await found(box, "noisy")).log[-1:]).startswith("garbage") or not server.problems:
            pass
    assert (
        "2 lines of its standard output were not messages and were skipped, the first: 'Listening'" in server.problems
    )
    await box.remove_mcp_server("noisy")


async def test_a_server_that_dies_says_so_and_starts_again_with_the_next_calls(box: BaseSandboxAsync) -> None:
    before = await found(box, "well")
    died = await box.call_tool("die")
    assert died.is_error
    assert "'well' ended in the middle of the call: its process ended with exit code 3" in died.stderr
    assert "test server, well" in died.stderr
    after = await found(box, "well")
    assert (after.state, after.pid, after.tools) == ("IDLE", None, before.tools)
    calls = (box.call_tool("echo", {"text": str(number)}) for number in range(5))
    assert [said.text for said in await asyncio.gather(*calls)] == ["0", "1", "2", "3", "4"]
    assert (await found(box, "well")).starts == before.starts + 1


async def test_servers_start_again_when_the_program_that_speaks_mcp_is_killed(box: BaseSandboxAsync) -> None:
    assert (await box.run_shell_command("pkill -9 -f mcp.clien[t]")).exit_code == 0
    async with asyncio.timeout(30):
        while (await found(box, "well")).state != "IDLE":
            pass
    assert (await box.call_tool("echo", {"text": "again"})).text == "again"


async def test_a_name_of_two_servers_is_called_by_server_and_name(box: BaseSandboxAsync) -> None:
    await add(box, other=stdio())
    with pytest.raises(ToolNotFound, match=r"several servers have a tool 'echo': call it as one of well\.echo,other\."):
        await box.call_tool("echo", {"text": "a"})
    assert (await box.call_tool("other.echo", {"text": "b"})).text == "b"
    await box.remove_mcp_server("other")
    assert (await box.call_tool("echo", {"text": "c"})).text == "c"


async def test_an_image_of_50_mb_comes_whole_and_one_over_the_bound_is_named(box: BaseSandboxAsync) -> None:
    size = 50_000_000 * 4 // 3 // 4 * 4
    shown = await box.call_tool("image", {"size": size})
    (image,) = shown.content
    assert (image["type"], image["mimeType"], len(image["data"])) == ("image", "image/png", size)
    left_out = await box.call_tool("image", {"size": 68_000_000})
    assert "Content of type 'image' with 68000" in left_out.text
    assert (await box.call_tool("echo", {"text": "a"})).text == "a"


async def gone(box: BaseSandboxAsync, pattern: str) -> None:
    """Wait until no process is left whose command line fits a pattern, which fits not itself."""
    await box.run_shell_command(f"while pgrep -f '{pattern}'; do sleep 0.05; done", timeout=60)
    assert (await box.run_shell_command(f"pgrep -f '{pattern}'")).exit_code == 1


async def test_a_server_that_is_killed_takes_its_children_along_and_runs_again_with_the_next_call(
    box: BaseSandboxAsync,
) -> None:
    line = "sleep 23456 & sleep 23456 & exec python server.py"
    (before,) = await add(box, killed={"command": "sh", "args": ["-c", line]})
    assert before.state == "READY", before
    heard: list[object] = []
    async for event in box.stream("killed.hang"):
        heard.append(event)
        if event == Progress(2.0, 4.0, "step 2"):
            await box.run_shell_command(f"kill -9 {before.pid}")
    assert isinstance(heard[-1], Result)
    assert heard[-1].is_error
    assert "'killed' ended in the middle of the call: its process was ended by signal 9" in heard[-1].message
    await gone(box, "sleep 2345[6]")
    assert (await box.call_tool("killed.echo", {"text": "again"})).text == "again"
    after = await found(box, "killed")
    assert (after.state, after.starts) == ("READY", before.starts + 1)
    assert after.pid != before.pid
    await box.remove_mcp_server("killed")
    await gone(box, "sleep 2345[6]")


async def test_servers_that_never_work_leave_no_process(box: BaseSandboxAsync) -> None:
    stubborn = {
        # It hangs in its handshake, and hears no signal but the one that nobody can ignore.
        "mute": ("trap '' TERM INT HUP; sleep 34567 & exec python server.py mute", 1),
        "endless": ("sleep 34567 & exec python server.py endless", 60),
        "deaf": ("sleep 34567 >deaf.txt & exec python server.py deaf", 60),
    }
    servers = await add(
        box,
        **{
            name: {"command": "sh", "args": ["-c", line], "startup_timeout": seconds}
            for name, (line, seconds) in stubborn.items()
        },
    )
    assert {server.name: (server.state, server.error) for server in servers} == {
        "mute": ("FAILED", "it was not ready within 1 s"),
        "endless": ("FAILED", "it wrote a message of more than 80 MiB"),
        "deaf": ("FAILED", "it ended the connection"),
    }
    await gone(box, "sleep 3456[7]")
    await gone(box, "server.py (mute|endless|dea[f])")
    assert (await box.call_tool("well.echo", {"text": "undisturbed"})).text == "undisturbed"
    for name in stubborn:
        await box.remove_mcp_server(name)


async def test_calls_that_come_while_a_server_starts_again_wait_for_that_start(box: BaseSandboxAsync) -> None:
    line = "mkfifo gate 2>/dev/null; read line <gate; exec python server.py"
    adding = asyncio.create_task(add(box, gated={"command": "sh", "args": ["-c", line]}))
    await box.run_shell_command("until test -p gate; do sleep 0.05; done; echo >gate")
    await adding
    await box.call_tool("gated.die")
    calls = [asyncio.create_task(box.call_tool("gated.echo", {"text": str(number)})) for number in range(3)]
    async with asyncio.timeout(60):
        while (await found(box, "gated")).state != "STARTING":
            pass
    calls.append(asyncio.create_task(box.call_tool("gated.echo", {"text": "3"})))
    assert not any(call.done() for call in calls)
    await box.run_shell_command("echo >gate")
    assert [said.text for said in await asyncio.gather(*calls)] == ["0", "1", "2", "3"]
    assert (await found(box, "gated")).starts == 2
    await box.remove_mcp_server("gated")


async def test_a_removed_server_leaves_no_process(box: BaseSandboxAsync) -> None:
    line = "sleep 12345 & sleep 12345 & exec python server.py"
    (server,) = await add(box, many={"command": "sh", "args": ["-c", line]})
    assert server.state == "READY"
    await box.remove_mcp_server("many")
    # Killed they are; to be gone takes a moment.
    await gone(box, "sleep 1234[5]")
    with pytest.raises(InvalidArgument, match=r"no MCP server 'many': there are .*'well'"):
        await box.remove_mcp_server("many")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no mcpServers": ({"servers": {}}, r"is only \{\"mcpServers\": .*it has 'servers'"),
    "no object": ({"mcpServers": []}, "mcpServers"),
    "no server": ({"mcpServers": {}}, "1 to 64 servers"),
    "neither": ({"mcpServers": {"a": {}}}, "'a': it has either a command or a url"),
    "both": ({"mcpServers": {"a": {"command": "a", "url": "http://a"}}}, "either"),
    "a text": ({"mcpServers": {"a": "python"}}, "'a': it is"),
    "an unknown key": ({"mcpServers": {"a": {"command": "a", "autoApprove": []}}}, "autoApprove is not a setting"),
    "args": ({"mcpServers": {"a": {"command": "a", "args": "-x"}}}, "args are a list of texts"),
    "env": ({"mcpServers": {"a": {"command": "a", "env": {"A": 1}}}}, "env is an object of texts"),
    "a type": ({"mcpServers": {"a": {"url": "http://a", "type": "websocket"}}}, "streamable HTTP"),
    "a url": ({"mcpServers": {"a": {"url": "ftp://a"}}}, "http:// or https://"),
    "headers": ({"mcpServers": {"a": {"url": "http://a", "headers": {"A": "b\r\nc"}}}}, "printable ASCII"),
    "a dot": ({"mcpServers": {"a.b": {"command": "a"}}}, "none of them a dot"),
    "a time": ({"mcpServers": {"a": {"command": "a", "startup_timeout": 0}}}, "startup_timeout"),
    "there": ({"mcpServers": {"well": {"command": "a"}, "new": {"command": "a"}}}, "'well' already.*overwrite"),
}


@pytest.mark.parametrize(("config", "said"), BAD.values(), ids=BAD)
async def test_a_config_that_does_not_fit_is_refused_and_changes_nothing(
    box: BaseSandboxAsync, config: dict[str, Any], said: str
) -> None:
    before = [server.name for server in await box.list_mcp_servers()]
    with pytest.raises(InvalidArgument, match=said):
        await box.add_mcp_servers(config)
    assert [server.name for server in await box.list_mcp_servers()] == before
