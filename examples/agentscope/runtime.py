"""What AgentScope Runtime's pages show of sandboxes, by its own package: only an address and a token are a mesh's."""

import asyncio
import io
import os

from agentscope_runtime.engine.services.sandbox import SandboxService
from agentscope_runtime.sandbox import BaseSandbox, BaseSandboxAsync, FilesystemSandbox
from agentscope_runtime.sandbox.manager import SandboxManager

mesh = {"base_url": os.environ["BASE_URL"], "bearer_token": os.environ["BEARER_TOKEN"]}

# A box: cells, commands, tools, and what is known of it.
with BaseSandbox(**mesh) as box:
    assert box.run_ipython_cell("x = 6 * 7\nprint(x)")["content"][0]["text"] == "42\n"
    assert box.run_ipython_cell("print(x)")["isError"] is False
    result = box.run_shell_command("echo here; exit 3")
    assert result["content"][0]["text"].startswith("here"), result
    assert "run_shell_command" in str(box.list_tools())
    assert box.get_info()["sandbox_type"] == "base"
    assert box.call_tool("run_ipython_cell", {"code": "print('by name')"})["content"][0]["text"] == "by name\n"

    # Its files.
    entry = box.fs.write("data/note.txt", "line\n")
    assert (entry["path"], entry["type"], entry["size"]) == ("/workspace/data/note.txt", "file", 5)
    assert box.fs.read("data/note.txt") == "line\n"
    assert box.fs.read("data/note.txt", fmt="bytes") == b"line\n"
    assert b"".join(box.fs.read("data/note.txt", fmt="stream")) == b"line\n"
    box.fs.write("data/stream", io.BytesIO(b"x" * 3_000_000))
    many = box.fs.write_many([{"path": "a", "data": "1"}, {"path": "b/c", "data": b"2"}])
    assert [one["name"] for one in many] == ["a", "c"]
    assert {one["name"] for one in box.fs.list("data")} == {"note.txt", "stream"}
    assert box.fs.mkdir("made")
    assert not box.fs.mkdir("made")
    assert box.fs.move("a", "made/a")["path"] == "/workspace/made/a"
    assert not box.fs.exists("a")
    assert box.fs.exists("made/a")
    assert box.fs.read("made/a") == "1"
    box.fs.remove("made")
    assert not box.fs.exists("made/a")

# The tools of files.
with FilesystemSandbox(**mesh) as box:
    box.write_file("note.txt", "one two")
    box.edit_file("note.txt", [{"oldText": "two", "newText": "three"}])
    assert box.read_file("note.txt")["content"][0]["text"] == "one three"
    assert "note.txt" in str(box.search_files(".", "note*", exclude_patterns=["*.md"]))
    assert box.get_info()["version"] == "agentscope/runtime-sandbox-filesystem:latest"


# The same with an event loop.
async def use_async() -> None:
    async with BaseSandboxAsync(**mesh) as box:
        result = await box.run_ipython_cell("print(1)")
        assert result["content"][0]["text"] == "1\n"
        await box.fs.write_async("a", b"2")
        assert await box.fs.read_async("a") == "2"
        written = await box.fs.write_many_async([{"path": "b", "data": "3"}])
        assert [one["path"] for one in written] == ["/workspace/b"]
        assert await box.fs.read_async("b") == "3"


asyncio.run(use_async())


# Sessions: a user's sandboxes are found again from another program.
async def use_sessions() -> None:
    service = SandboxService(**mesh)
    await service.start()
    (first, files) = service.connect("session", "ann", ["base", "filesystem"])
    first.run_ipython_cell("kept = 1")
    again = service.connect("session", "ann", ["base"])
    assert {one.sandbox_id for one in again} == {first.sandbox_id, files.sandbox_id}
    assert first.run_ipython_cell("print(kept)")["content"][0]["text"] == "1\n"
    assert service.release("session", "ann")
    await service.stop()


asyncio.run(use_sessions())

# The manager: sandboxes by id.
manager = SandboxManager(**mesh)
identity = manager.create_from_pool("base", meta={"session_ctx_id": "by-hand"})
assert manager.get_session_mapping("by-hand") == [identity]
assert manager.list_session_keys() == ["by-hand"]
assert manager.check_health(identity) is True
assert manager.get_status(identity) == "running"
assert manager.stop(identity)
assert manager.get_status(identity) == "paused"
assert manager.start(identity)
assert manager.call_tool(identity, "run_shell_command", {"command": "echo on"})["content"][0]["text"] == "on\n"
assert "404" in manager.get_info("nobody")
assert manager.release(identity) is True
assert manager.list_session_keys() == []
print("every call answered")
