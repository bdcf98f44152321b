"""What the MCP adapter adds to a call, over both of its transports."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Awaitable, Callable

from mcp import Client, StdioServerParameters

from benchmarks.figures import Figure, spread, timed
from benchmarks.meshes import RunningMesh
from sandmesh import BaseSandboxAsync
from sandmeshd.facades.mcp import AdapterSettings, McpHttpSettings
from sandmeshd.facades.mcp.http import open_http_adapter

ROUNDS = 300
CODE = {"code": "1+1"}

Call = Callable[[], Awaitable[object]]


async def adapter(mesh: RunningMesh) -> list[Figure]:
    """Measure one small cell by the SDK, by MCP over pipes and by MCP over HTTP, in turns.

    Over HTTP the adapter runs in this process, beside its client.
    """
    stdio = StdioServerParameters(
        command=sys.executable, args=["-m", "sandmeshd.cli.user", "mcp", "--base-url", mesh.address]
    )
    http = McpHttpSettings(listen=("127.0.0.1:0",))
    async with (
        BaseSandboxAsync(base_url=mesh.address) as box,
        open_http_adapter(AdapterSettings(base_url=mesh.address), http) as (url,),
        Client(stdio) as by_pipe,
        Client(url) as by_http,
    ):
        ways: dict[str, Call] = {
            "by the SDK": lambda: box.call_tool("run_ipython_cell", CODE),
            "by MCP, standard input and output": lambda: by_pipe.call_tool("run_ipython_cell", CODE),
            "by MCP, HTTP": lambda: by_http.call_tool("run_ipython_cell", CODE),
        }
        return [_figure(way, taken, taken_plain) for way, taken, taken_plain in await _measure(ways)]


async def _measure(ways: dict[str, Call]) -> list[tuple[str, list[float], list[float]]]:
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for call in ways.values():
        await call()
    for _ in range(ROUNDS):
        for way, call in ways.items():
            taken[way].append(await timed(call()))
    plain = next(iter(taken.values()))
    return [(way, times, plain) for way, times in taken.items()]


def _figure(way: str, taken: list[float], plain: list[float]) -> Figure:
    by_this, by_sdk = statistics.median(taken), statistics.median(plain)
    added = f"; adds {(by_this - by_sdk) * 1e3:.2f} ms, {by_this / by_sdk:.1f} times" if taken is not plain else ""
    return Figure(f'run_ipython_cell("1+1") {way}', f"{spread(taken)}{added}")
