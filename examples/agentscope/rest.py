"""The methods of AgentScope Runtime's package that the other programs leave, at the door of a mesh."""

import asyncio
import os
import tempfile
from pathlib import Path

from agentscope_runtime.engine.services.sandbox import SandboxService
from agentscope_runtime.sandbox import BaseSandbox, BaseSandboxAsync, FilesystemSandbox
from agentscope_runtime.sandbox.manager import SandboxManager

mesh = {"base_url": os.environ["BASE_URL"], "bearer_token": os.environ["BEARER_TOKEN"]}
SERVER = """
import json, sys
def answer(method, params):
    if method == "initialize":
        shown = {"name": "echo", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": shown}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        return {"tools": [{"name": "echo", "description": "Echo.", "inputSchema": schema}]}
    return {"content": [{"type": "text", "text": "echo: " + params["arguments"]["text"]}], "isError": False}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
SERVERS = {"mcpServers": {"echo": {"command": "python3", "args": ["-c", SERVER]}}}


def text_of(result) -> str:
    """Return the text of a tool's result."""
    return result["content"][0]["text"]


# Tools of files, and a server of the user's own.
with FilesystemSandbox(**mesh) as box:
    box.create_directory("folder")
    box.write_file("folder/one", "1")
    box.write_file("two", "2")
    assert (box.fs.read("folder/one"), box.fs.read("two")) == ("1", "2")
    assert "two" in text_of(box.list_directory("."))
    assert "folder" in text_of(box.directory_tree("."))
    box.move_file("two", "folder/two")
    assert not box.fs.exists("two")
    assert "2" in text_of(box.read_multiple_files(["folder/one", "folder/two"]))
    assert "size" in text_of(box.get_file_info("folder/two"))
    assert "/workspace" in text_of(box.list_allowed_directories())
    assert box.add_mcp_servers(SERVERS) == "OK"
    assert "echo" in box.list_tools()["echo"]
    assert box.list_tools("echo").keys() == {"echo"}
    assert text_of(box.call_tool("echo", {"text": "hello"})) == "echo: hello"
    # Adding them again changes nothing, and one that does not start is named.
    assert box.add_mcp_servers(SERVERS) == "OK"
    assert box.add_mcp_servers(SERVERS, overwrite=True) == "OK"
    failed = box.add_mcp_servers({"mcpServers": {"broken": {"command": "python3", "args": ["-c", "exit(3)"]}}})
    assert failed["isError"], failed
    assert "broken" in text_of(failed)
    assert text_of(box.call_tool("echo", {"text": "still"})) == "echo: still"

# Without a block.
box = BaseSandbox(**mesh)
box.start()
assert text_of(box.run_ipython_cell("print(1)")) == "1\n"
box.close()


async def use_async() -> None:
    """Call the twins, of a box and of the manager."""
    async with BaseSandboxAsync(**mesh) as box:
        assert (await box.get_info_async())["sandbox_type"].startswith("base")
        assert "run_shell_command" in str(await box.list_tools_async())
        assert text_of(await box.call_tool_async("run_ipython_cell", {"code": "print(2)"})) == "2\n"
        assert await box.add_mcp_servers_async(SERVERS) == "OK"
        assert text_of(await box.call_tool_async("echo", {"text": "twin"})) == "echo: twin"
        assert text_of(await box.run_shell_command("echo 3")) == "3\n"
        files = box.fs
        await files.mkdir_async("made")
        await files.write_async("made/a", "b")
        assert await files.exists_async("made/a")
        assert [one["name"] for one in await files.list_async("made")] == ["a"]
        await files.move_async("made/a", "c")
        assert not await files.exists_async("made/a")
        assert await files.read_async("c") == "b"
        await files.remove_async("c")
        assert not await files.exists_async("c")
    manager = SandboxManager(**mesh)
    identity = await manager.create_from_pool_async("base", meta={"session_ctx_id": "twins"})
    assert await manager.get_session_mapping_async("twins") == [identity]
    assert await manager.list_session_keys_async() == ["twins"]
    assert await manager.check_health_async(identity) is True
    assert await manager.get_status_async(identity) == "running"
    assert (await manager.get_info_async(identity))["sandbox_type"] == "base"
    assert await manager.stop_async(identity)
    assert await manager.start_async(identity)
    assert "run_shell_command" in str(await manager.list_tools_async(identity))
    assert await manager.add_mcp_servers_async(identity, SERVERS) == "OK"
    assert text_of(await manager.call_tool_async(identity, "echo", {"text": "on"})) == "echo: on"
    assert await manager.release_async(identity) is True
    created = await manager.create_async("base")
    assert await manager.get_status_async(created) == "running"
    await manager.cleanup_async()
    assert "404" in str(await manager.get_info_async(created))
    assert await manager.list_session_keys_async() == []
    service = SandboxService(**mesh)
    await service.start()
    assert await service.health()
    await service.stop()


asyncio.run(use_async())

# The manager, by hand: files of this machine, servers, and an end of all that the token has.
manager = SandboxManager(**mesh)
identity = manager.create("base")
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "local").write_text("of this machine")
    manager.fs_write_from_path(identity, "there", str(Path(folder, "local")))
    assert manager.fs_read(identity, "there") == "of this machine"
    asyncio.run(manager.fs_write_from_path_async(identity, "too", str(Path(folder, "local"))))
    assert manager.fs_read(identity, "too") == "of this machine"
assert manager.add_mcp_servers(identity, SERVERS) == "OK"
assert text_of(manager.call_tool(identity, "echo", {"text": "by hand"})) == "echo: by hand"
assert manager.get_info(identity)["sandbox_type"] == "base"
manager.cleanup()
assert "404" in str(manager.get_info(identity))
print("every call answered")
