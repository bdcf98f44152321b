"""What programs outside get of a sandbox: events, results, lines of JSON, recordings, names in tables."""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
import unicodedata
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

from google.protobuf.message import DecodeError

from sandmesh._calls.call import Call, Order
from sandmesh._calls.multiplexer import CallMux
from sandmesh._calls.runner import Collector
from sandmesh._calls.short_call import Quick
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import ProtocolMismatch, SandmeshError
from sandmesh.events import Output
from sandmesh.sandbox.mcp.connection import Handlers, McpConnectionAsync
from sandmeshd.cli.replay.trace import read_format, read_trace
from sandmeshd.cli.terminal.output import escape_controls
from sandmeshd.gateway.routes.sandbox_use import read_use
from tests.fuzz.messages import Filler, wire
from tests.fuzz.mutation import encoded, mutated, text, value, varied
from tests.fuzz.target import Fault, Feed, Target

from .wire import inside, simple

_stream = inside("sandmesh._calls.event_stream")
_records = inside("sandmeshd.drivers.node.records")
_BLOCKS: Sequence[dict[str, Any]] = (
    {"type": "text", "text": "x", "annotations": {"text/html": "<b>"}, "description": "stdout"},
    {"type": "text", "text": "more", "annotations": {"continues": True}},
    {"type": "image", "data": "aGk=", "mimeType": "image/png", "annotations": {"e2b/chart": {"type": "line"}}},
    {"type": "resource", "resource": {"uri": "x", "text": "y", "blob": "eA=="}},
    {"type": "text", "annotations": {"application/vnd.dataresource+json": {"data": []}}},
)
_CALL = "call-1"


def _make_events(random: Random) -> bytes:
    response = pb.MultiplexResponse()
    for number in range(1, random.randint(2, 7)):
        event = response.batch.events.add(sequence=number)
        Filler(random, share=0.35).fill(event)
        if random.random() < 0.8:
            event.sequence = number
        if random.random() < 0.5:
            event.content.json = encoded(random, varied(random, dict(random.choice(_BLOCKS))))
    if random.random() < 0.8:
        result = response.batch.events.add(sequence=20).result
        Filler(random, share=0.5).fill(result)
        result.structured_json = encoded(random, value(random)) if random.random() < 0.5 else b""
    response.batch.call_id = _CALL
    return wire(random, response)


class _Both:
    """Every subscriber of a call that there is."""

    def __init__(self, mux: CallMux) -> None:
        self.collector, self.quick = Collector(mux), Quick(mux)
        self._all: Sequence[Any] = (self.collector, _stream._Buffer(asyncio.get_running_loop()), self.quick)

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Pass the events to each."""
        for one in self._all:
            one.on_events(call, events, size)

    def on_input_taken(self, call: Call) -> None:
        """Do nothing."""

    def on_error(self, error: SandmeshError) -> None:
        """Pass the error to each."""
        for one in self._all:
            one.on_error(error)


def _feed_events(data: bytes) -> str:
    """Deliver a response to a call that waits for it; one call's content must not break the others."""
    try:
        response = pb.MultiplexResponse.FromString(data)
    except DecodeError:
        return "DecodeError"
    mux: Any = CallMux("fuzz")
    subscribers = _Both(mux)
    mux._calls[_CALL] = Call(_CALL, Order("sb", 1, "run_shell_command", b"", 0.0), subscribers)
    mux._deliver(response)
    if mux._timer is not None:
        mux._timer.cancel()
    # Each is looked at: an exception that nobody retrieves is reported by the loop.
    errors = [future.exception() for future in (subscribers.collector.done, subscribers.quick.done) if future.done()]
    if any(errors):
        return "SandmeshError"
    if not subscribers.collector.done.done():
        return "no result"
    result = subscribers.collector.done.result()
    json.dumps(result)
    _ = (result.text, result.stdout, result.stderr, result.exit_code, result.fault, result.structured, result.images)
    _ = (result.records, result.charts, result.forms("text/html"), result.stdout_bytes)
    return "ok"


def _make_lines(random: Random) -> bytes:
    message: dict[str, Any] = {
        "id": 1,
        "result": {},
        "error": {"code": 1, "message": "x"},
        "server": "s",
        "method": "m",
        "params": {},
    }
    other: dict[str, Any] = {"request": 3, "server": "s", "method": "m", "params": {}}
    chosen: Sequence[dict[str, Any]] = (message, other, {"cancelled": 3})
    lines = [encoded(random, varied(random, dict(random.choice(chosen)))) for _ in range(random.randint(1, 5))]
    return b"\n".join(lines) + b"\n"


class _Lines:
    """The output of a call: one piece, then the end."""

    def __init__(self, data: bytes) -> None:
        self._left = [data]

    async def take(self) -> list[Any]:
        """Return what is left."""
        return [Output("stdout", self._left.pop(), "")] if self._left else []

    async def write(self, data: bytes) -> None:
        """Drop it."""

    def cancel(self) -> None:
        """Do nothing."""


async def _feed_lines(data: bytes) -> str:
    """Feed a client of a sandbox's MCP servers with lines, while a request waits."""
    connection: Any = McpConnectionAsync(cast("Any", _Lines(data)), Handlers())
    request = asyncio.create_task(connection.request("s", "prompts/list"))
    await asyncio.wait([connection._reader, request])
    await connection.aclose()
    both: list[asyncio.Task[object]] = [connection._reader, request]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    await asyncio.gather(*list(connection._tasks.values()), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception) and not isinstance(outcome, SandmeshError):
            raise outcome
    return type(outcomes[1]).__name__


def _make_trace(random: Random) -> bytes:
    first = {"format": "sandmesh-trace", "started": "2026-01-01", "video": "video.mp4"}
    step: dict[str, Any] = {
        "step": 1,
        "at": 1.5,
        "seconds": 2,
        "tool": "t",
        "arguments": {},
        "result": "r",
        "failed": False,
    }
    lines = [varied(random, first), *(varied(random, step) for _ in range(4)), {"ended": value(random)}]
    data = b"\n".join(encoded(random, line) for line in lines)
    return mutated(random, data) if random.random() < 0.2 else data


@asynccontextmanager
async def _open_trace() -> AsyncGenerator[Feed]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder, "trace.jsonl")

        def feed(data: bytes) -> str:
            path.write_bytes(data)
            read_format(path)
            trace = read_trace(path)
            return "unreadable" if trace.unreadable else "ok"

        yield feed


def _make_text(random: Random) -> bytes:
    made = "".join(text(random) if random.random() < 0.5 else chr(random.randrange(0x110000)) for _ in range(8))
    return made.encode("utf-8", "surrogatepass")


def _feed_text(data: bytes) -> str:
    """Escape a text for a terminal: nothing that moves a cursor is left, and it can be printed."""
    found = data.decode("utf-8", "surrogatepass")
    shown = escape_controls(found)
    shown.encode()
    if any(unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for letter in shown):
        raise Fault(f"{shown!r} has control characters")
    return "escaped" if shown != found else "ok"


def _make_record(random: Random) -> bytes:
    return encoded(random, varied(random, {"sandbox": "CgRzYl8x", "fencing_token": 3}))


def _feed_record(data: bytes) -> str:
    """Read a line of a sandbox's record on its node."""
    return "ok" if _records._parsed(data) else "unreadable"


def _make_use(random: Random) -> bytes:
    used: dict[str, Any] = {
        "cpu": 0.5,
        "cpu_seconds": 3,
        "memory_bytes": 1 << 30,
        "disk_bytes": None,
        "processes": 7,
        "history": [],
    }
    return encoded(random, varied(random, used))


def _feed_use(data: bytes) -> str:
    """Read what an agent says that its sandbox uses: numbers for Prometheus, or nothing."""
    try:
        found = read_use(data)
    except ProtocolMismatch:
        return "refused"
    if not all(0 <= value < math.inf for value in found.values()):
        raise Fault(f"{found} is shown")
    return "ok"


TARGETS = (
    Target("events", _make_events, simple(_feed_events)),
    Target("mcp-lines", _make_lines, simple(_feed_lines)),
    Target("recording", _make_trace, _open_trace),
    Target("terminal", _make_text, simple(_feed_text)),
    Target("record", _make_record, simple(_feed_record)),
    Target("use", _make_use, simple(_feed_use)),
)
