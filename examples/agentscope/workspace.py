"""A workspace of AgentScope 2 in a sandbox, by its manager: tools, files, skills, an MCP server, and opened again."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from agentscope.mcp import MCPClient, StdioMCPConfig
from agentscope.message import UserMsg

from sandmesh.integrations.agentscope import Place, SandmeshBackend, SandmeshWorkspace
from sandmesh.integrations.agentscope.manager import SandmeshWorkspaceManager

PYTHON = "/workspace/.agentscope/.venv/bin/python"
SERVER = """
from mcp.server import MCPServer

server = MCPServer("echo")

@server.tool()
def echo(text: str) -> str:
    return "echo: " + text

server.run()
"""
SKILL = "---\nname: counting\ndescription: Count files.\n---\nUse `ls | wc -l`.\n"


async def use_backend(backend: SandmeshBackend) -> None:
    """Run programs, and read and write files."""
    failed = await backend.exec_shell(["sh", "-c", "echo out; echo err >&2; pwd; exit 3"])
    assert (failed.exit_code, failed.stdout, failed.stderr) == (3, b"out\n/workspace\n", b"err\n")
    assert (await backend.exec_shell(["no-such-program"])).exit_code == 127
    assert (await backend.exec_shell(["sleep", "60"], timeout=0.3)).exit_code == -1
    assert (await backend.exec_shell(["pwd"], cwd="/etc")).stdout == b"/etc\n"
    every_byte = bytes(range(256)) * 4096
    await backend.write_file("deep/er/bytes.bin", every_byte)
    assert await backend.read_file("/workspace/deep/er/bytes.bin") == every_byte
    assert await backend.file_exists("/workspace/deep/er")
    assert await backend.is_dir("/workspace/deep")

    async def chunks():
        for number in range(3):
            yield str(number).encode() * 10

    await backend.write_stream("deep/stream", chunks())
    assert await backend.read_file("deep/stream") == b"0" * 10 + b"1" * 10 + b"2" * 10
    assert {entry.name for entry in await backend.scandir("/workspace/deep")} == {"er", "stream"}
    await backend.delete_path("/workspace/deep/stream")
    assert not await backend.file_exists("/workspace/deep/stream")
    try:
        await backend.read_file("/workspace/deep/stream")
    except FileNotFoundError:
        return
    raise AssertionError("a file was read that does not exist")


def text_of(chunk) -> str:
    """Return the text of a tool's result."""
    return "".join(block.text for block in chunk.content)


async def last(call) -> str:
    """Return the text that a tool ends with, whether it streams or not."""
    found = await call
    if hasattr(found, "__aiter__"):
        return "".join([text_of(chunk) async for chunk in found])
    return text_of(found)


async def use_tools(workspace: SandmeshWorkspace) -> None:
    """Call each tool of an agent, and one of an MCP server in the sandbox."""
    tools = {tool.name: tool for tool in await workspace.list_tools()}
    assert set(tools) == {"Bash", "Edit", "Glob", "Grep", "Read", "Write"}
    assert "42" in await last(tools["Bash"](command="echo $((6 * 7))"))
    await last(tools["Write"](file_path="/workspace/project/notes.txt", content="one\ntwo\n"))
    assert await workspace.get_backend().read_file("/workspace/project/notes.txt") == b"one\ntwo\n"
    assert "two" in await last(tools["Read"](file_path="/workspace/project/notes.txt"))
    assert "notes.txt" in await last(tools["Glob"](pattern="**/*.txt", path="/workspace/project"))
    assert "notes.txt" in await last(tools["Grep"](pattern="tw.", path="/workspace/project"))

    config = StdioMCPConfig(command=PYTHON, args=["-c", SERVER])
    await workspace.add_mcp(MCPClient(name="echo", is_stateful=True, mcp_config=config), session_id="one")
    (client,) = await workspace.list_mcps(session_id="one")
    (tool,) = await client.list_tools()
    answered = text_of(await tool(text="hello"))
    assert "echo: hello" in answered, answered
    await workspace.remove_mcp("echo", session_id="one")
    assert await workspace.list_mcps(session_id="one") == []


def write_skill(folder: Path) -> Path:
    """Write a skill into a new folder, and return it."""
    folder.mkdir()
    (folder / "SKILL.md").write_text(SKILL)
    return folder


async def use_skills_and_context(workspace: SandmeshWorkspace) -> None:
    """Give an agent a skill, and put a conversation aside."""
    with tempfile.TemporaryDirectory() as folder:
        await workspace.add_skill(str(write_skill(Path(folder, "counting"))), agent_id="writer")
    assert [skill.name for skill in await workspace.list_skills(agent_id="writer")] == ["counting"]
    await workspace.remove_skill("counting", agent_id="writer")
    path = await workspace.offload_context("one", [UserMsg(name="ada", content="hello")])
    assert b"hello" in await workspace.get_backend().read_file(path)
    assert "/workspace" in await workspace.get_instructions()


async def main() -> None:
    """Open a workspace, use all of it, open it again, and start another one from a snapshot of it."""
    async with SandmeshWorkspaceManager() as manager:
        workspace = await manager.get_workspace("ada", "writer", "one")
        assert await manager.get_workspace("ada", "writer", "two") is workspace
        await use_backend(workspace.get_backend())
        await use_tools(workspace)
        await use_skills_and_context(workspace)
        snapshot = await workspace.box.snapshot()
        await manager.close(workspace.workspace_id)
        again = await manager.get_workspace("ada", "writer", "three")
        assert await again.get_backend().read_file("/workspace/project/notes.txt") == b"one\ntwo\n"
    started = time.monotonic()
    async with SandmeshWorkspace(replace(Place(), snapshot=snapshot.snapshot_id, network="none")) as copy:
        print(f"from a snapshot: {time.monotonic() - started:.1f} s")
        assert await copy.get_backend().file_exists("/workspace/project/notes.txt")
        await copy.reset()
        await copy.box.delete_snapshot(snapshot)
        await copy.delete()
    await again.delete()
    print("every call answered")


asyncio.run(main())
