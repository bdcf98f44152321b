"""What it costs that an MCP server runs inside a sandbox: the same server, there and beside its client."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.figures import Figure, box_of, spread, timed
from benchmarks.meshes import RunningMesh

SERVER = Path(__file__).with_name("echo_server.py")
CALLS, WARM = 500, 50
ARGUMENTS = {"text": "hello"}


async def servers(mesh: RunningMesh) -> list[Figure]:
    """Measure calls of one caller, one after another, in turns of both ways so that a busy machine slows both."""
    direct: list[float] = []
    inside: list[float] = []
    async with (
        box_of(mesh) as box,
        stdio_client(StdioServerParameters(command=sys.executable, args=[str(SERVER)])) as (
            read,
            write,
        ),
    ):
        await box.fs.write_from_path(SERVER, "echo_server.py")
        started = time.perf_counter()
        await box.add_mcp_servers({"mcpServers": {"echo": {"command": "python", "args": ["echo_server.py"]}}})
        first = time.perf_counter() - started
        async with ClientSession(read, write) as session:
            await session.initialize()
            for _ in range(WARM + CALLS):
                direct.append(await timed(session.call_tool("echo", ARGUMENTS)))
                inside.append(await timed(box.call_tool("echo", ARGUMENTS)))
    plain, walled = statistics.median(direct[WARM:]), statistics.median(inside[WARM:])
    return [
        Figure("MCP tool, server beside its client", spread(direct[WARM:])),
        Figure("MCP tool, the same server inside a sandbox", spread(inside[WARM:])),
        Figure("what the sandbox adds at the median", f"{(walled - plain) * 1e3:.2f} ms, {walled / plain:.1f} times"),
        Figure("first server of a sandbox: added -> ready", f"{first * 1e3:.0f} ms"),
    ]
