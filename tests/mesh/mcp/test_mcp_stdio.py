"""`sandmesh mcp`: an MCP client over standard input and output, and how that ends."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sys
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters, types

from sandmesh import SandboxAsync, errors
from sandmeshd.mesh import Mesh
from tests.mesh.cli.test_private import SECONDS, descendants, gone
from tests.mesh.conftest import Home
from tests.mesh.mcp.mcp_world import INITIALIZE, text_of

ADAPTER = [sys.executable, "-m", "sandmeshd.cli.user", "mcp"]
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}

CLIENT = """
import asyncio, os, sys
from mcp import Client, StdioServerParameters

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    async with Client(server) as client:
        result = await client.call_tool("run_ipython_cell", {"code": "6 * 7"})
        print(result.content[0].text, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


class Adapter:
    """An adapter that is talked to line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, *options: str) -> Adapter:
        """Start one; lines may be long."""
        pipe = asyncio.subprocess.PIPE
        command = [*ADAPTER, *options]
        started = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, limit=1 << 20)
        adapter = cls(started)
        adapter.send(INITIALIZE)
        await adapter.answer(1)
        adapter.send(INITIALIZED)
        return adapter

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def answer(self, number: int) -> Any:
        """Wait for the answer to a request; every line before it must be of the protocol, too."""
        assert self.process.stdout is not None
        while True:
            line = json.loads(await asyncio.wait_for(self.process.stdout.readline(), 60))
            assert line["jsonrpc"] == "2.0"
            if line.get("id") == number:
                return line["result"]

    async def call(self, number: int, name: str, **arguments: object) -> Any:
        """Call a tool."""
        params = {"name": name, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        return await self.answer(number)

    async def end(self) -> tuple[int | None, str, str]:
        """Wait for its end; give its exit code and what it wrote last."""
        out, err = await asyncio.wait_for(self.process.communicate(), 30)
        return self.process.returncode, out.decode(), err.decode()


async def test_the_official_client_lists_and_runs_a_sandboxes_tools(mesh: Mesh) -> None:
    options = [*ADAPTER[1:], "--base-url", mesh.addresses[0], "--type", "filesystem"]
    async with Client(StdioServerParameters(command=ADAPTER[0], args=options)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"run_ipython_cell", "run_shell_command", "read_file"} <= tools.keys()
        assert tools["run_shell_command"].input_schema["required"] == ["command"]
        assert text_of(await client.call_tool("run_ipython_cell", {"code": "print('hidden'); 6 * 7"})) == "hidden\n42"
        with pytest.raises(MCPError, match="has no tool 'no_such_tool'"):
            await client.call_tool("no_such_tool", {})


async def test_images_errors_progress_cancellation_and_resources_go_through_the_pipes(mesh: Mesh) -> None:
    started = asyncio.Event()
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        started.set()

    options = [*ADAPTER[1:], "--base-url", mesh.addresses[0]]
    async with Client(StdioServerParameters(command=ADAPTER[0], args=options)) as client:
        code = "import IPython.display as d; d.display(d.Image(data=b'\\x89PNG\\r\\n\\x1a\\n', format='png')); 1 / 0"
        shown = await client.call_tool("run_ipython_cell", {"code": code})
        [image] = [block for block in shown.content if isinstance(block, types.ImageContent)]
        assert base64.b64decode(image.data) == b"\x89PNG\r\n\x1a\n"
        assert shown.is_error
        assert "ZeroDivisionError" in text_of(shown)
        endless = {"command": "sleep 1000 & echo $! > pid; echo up; wait"}
        running = asyncio.create_task(client.call_tool("run_shell_command", endless, progress_callback=hear))
        await asyncio.wait_for(started.wait(), 60)
        assert heard == ["up\n"]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        command = {"command": "while kill -0 $(cat pid); do sleep 0.02; done 2>/dev/null; echo gone", "timeout": 60}
        assert "gone" in text_of(await client.call_tool("run_shell_command", command))
        [content] = (await client.read_resource("workspace:///pid")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text.strip().isdigit()
        assert "workspace:///pid" in {str(resource.uri) for resource in (await client.list_resources()).resources}


@pytest.mark.parametrize("how", ["the end of its input", "Ctrl-C"])
async def test_an_adapter_that_is_told_to_end_gives_its_sandbox_back_and_writes_only_the_protocol(
    mesh: Mesh, how: str
) -> None:
    adapter = await Adapter.start("--base-url", mesh.addresses[0], "--manage", "--log-level", "DEBUG")
    made = await adapter.call(2, "new_sandbox")
    [sandbox] = made["structuredContent"]["sandboxes"]
    # A call that runs does not hold up the end.
    endless = {"name": "run_shell_command", "arguments": {"command": "sleep 1000"}}
    adapter.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": endless})
    if how == "Ctrl-C":
        adapter.process.send_signal(signal.SIGINT)
    else:
        assert adapter.process.stdin is not None
        adapter.process.stdin.close()
    code, out, err = await adapter.end()
    assert code == (130 if how == "Ctrl-C" else 0)
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
    assert "a sandbox is in use" in err
    with pytest.raises((errors.SandboxLost, errors.SandboxNotFound)):
        await SandboxAsync(sandbox["sandbox_id"], base_url=mesh.addresses[0]).start()


async def test_a_client_that_is_killed_takes_adapter_private_mesh_and_sandbox_along(home: Home) -> None:
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, *ADAPTER),
        stdout=asyncio.subprocess.PIPE, start_new_session=True, env=home.environment,
    )  # fmt: skip
    assert client.stdout is not None
    assert (await asyncio.wait_for(client.stdout.readline(), 60)).strip() == b"42"
    below = descendants(client.pid)
    assert len(below) >= 5, "adapter, mesh, store, sandbox and agent run"
    assert len(home.meshes) == 1
    client.send_signal(signal.SIGKILL)
    await client.wait()
    assert await gone(below, SECONDS) == set()
    assert home.meshes == []


async def test_a_line_that_is_no_message_harms_nothing(mesh: Mesh) -> None:
    adapter = await Adapter.start("--base-url", mesh.addresses[0])
    assert adapter.process.stdin is not None
    adapter.process.stdin.write(b"no json\n\xff\xfe\n[]\n\n")
    text = "x" * 200_000
    result = await adapter.call(2, "run_ipython_cell", code=f"len({text!r})")
    assert result["content"][0]["text"] == "200000"
    adapter.process.stdin.close()
    assert (await adapter.end())[0] == 0
