"""Messages of the programs that an agent runs beside user code, which user code can reach and change."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any, cast

from sandmesh.shared import frames
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.mcp.client.result_blocks import blocks_of
from sandmeshd.agent.mcp.client.tool_list import ToolListing
from sandmeshd.agent.mcp.manager.client_process import CallMessages, ClientProcess
from sandmeshd.agent.mcp.manager.clients import McpClients
from sandmeshd.agent.mcp.manager.requests import RequestRefused
from sandmeshd.agent.mcp.manager.server import Server, ServerRun
from sandmeshd.agent.mcp.manager.stderr_tail import StderrTail
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.python.kernels import is_block
from sandmeshd.agent.tools.browser.process import BrowserProcess
from sandmeshd.agent.tools.desktop.rfb import VERSION, RfbMessages
from sandmeshd.agent.tools.training.instance import InstanceProcess
from sandmeshd.agent.tools.viewers import BadMessage
from sandmeshd.agent.userland.python import kernel_protocol
from sandmeshd.contracts.mcp_config import ServerConfig
from tests.fuzz.mutation import encoded, mutated, text, value, varied
from tests.fuzz.target import Fault, Target, cuts

from .wire import Wire, inside, simple

_cells = inside("sandmeshd.agent.python.cells")
_kernels = inside("sandmeshd.agent.python.kernels")
_forks = inside("sandmeshd.agent.python.forks")
_servers = inside("sandmeshd.agent.mcp.manager.server")
_requests = inside("sandmeshd.agent.mcp.manager.requests")
_KINDS = (
    kernel_protocol.BLOCK,
    kernel_protocol.BLOCK_WAITS,
    kernel_protocol.SYNC,
    kernel_protocol.END,
    kernel_protocol.ASK,
    kernel_protocol.FORKED,
    b"\x00",
    b"",
)
_BLOCK: Mapping[str, Any] = {"type": "text", "text": "x", "annotations": None, "description": "stdout"}
_ERROR: Mapping[str, Any] = {"name": "ValueError", "value": "x", "traceback": ["a", "b"]}
_TOOL: Mapping[str, Any] = {"name": "t", "description": "d", "inputSchema": {"type": "object", "properties": {}}}
_HEADS: tuple[Mapping[str, Any], ...] = (
    {"up": True},
    {"session": 1, "opened": True},
    {"session": 1, "listing": True},
    {"session": 1, "failed": "x", "fault": True},
    {"session": 1, "closed": "x"},
    {"session": 1, "problem": "x"},
    {"session": 1, "message": "notifications/message"},
    {"session": 1, "message": "sampling/createMessage", "request": 3},
    {"session": 1, "message": "elicitation/create", "request": 4},
    {"session": 1, "cancelled": 3},
    {"call": 1, "progress": [1, 2, "x"]},
    {"call": 1, "block": True, "waits": True},
    {"call": 1, "end": True, "is_error": True, "message": "m"},
)


class _NoProcess:
    """A process that is never there."""

    def kill(self) -> None:
        """Do nothing."""


def _make_kernel(random: Random) -> bytes:
    made: list[bytes] = []
    for _ in range(random.randint(1, 6)):
        kind = random.choice(_KINDS)
        payload = encoded(random, varied(random, dict(random.choice((_BLOCK, _ERROR)))))
        if kind == kernel_protocol.END and random.random() < 0.8:
            payload = bytes([random.randrange(4)]) + text(random).encode() + b"\0" + payload
        made.append(frames.pack(kind + payload))
    data = b"".join(made)
    return mutated(random, data) if random.random() < 0.2 else data


async def _feed_kernel(data: bytes) -> str:
    """Feed a kernel's channel, and read each frame as a cell does."""
    channel, wire_ = _kernels._Channel(), Wire()
    channel.connection_made(wire_)
    for piece in cuts(data):
        if not wire_.closed:
            channel.data_received(piece)
    process = cast("Any", type("P", (), {"ended": asyncio.get_running_loop().create_future()}))
    while channel.frames:
        frame = await channel.next(process)
        if frame is not None and frame[0] == kernel_protocol.END:
            if not frame[1]:
                raise Fault("an empty END frame passed")
            _cells._structured_error(frame[1][1:].partition(b"\0")[2])
        elif frame is not None and is_block(frame[1]):
            _check_block(frame[1])
    channel.connection_lost(None)
    return "aborted" if wire_.closed else "ok"


def _check_block(payload: bytes) -> None:
    # Deeper in the stack than the agent, which is why readers outside do not trust it.
    with suppress(RecursionError):
        if not isinstance(json.loads(payload).get("type"), str):
            raise Fault("a block without a type passed")


def _make_fork(random: Random) -> bytes:
    answer: dict[str, Any] = {"not_copied": ["a socket"], "refused": "x", "errno": 11, "forked": 5}
    return encoded(random, random.choice((varied(random, answer), value(random))))


def _feed_fork(data: bytes) -> str:
    """Read an answer of the process that a kernel forks for its forks."""
    try:
        answer = _forks._read(data)
        if len(_forks._refusal(answer)) > 4_096:
            raise Fault("a refusal without a bound")
        if sum(map(len, _forks._names(answer))) > 1 << 18:
            raise Fault("names without a bound")
    except ToolFailure:
        return "refused"
    return "ok"


def _make_mcp(random: Random) -> bytes:
    made: list[bytes] = []
    for _ in range(random.randint(1, 6)):
        chosen = varied(random, dict(random.choice(_HEADS)))
        head = encoded(random, chosen)
        body = encoded(
            random, random.choice((value(random), {"tools": [varied(random, dict(_TOOL))], "problems": ["p"]}))
        )
        made.append(frames.pack(struct.pack("!I", len(head)) + head + body))
    data = b"".join(made)
    return mutated(random, data) if random.random() < 0.2 else data


class _Outside:
    """A client outside of the sandbox."""

    capabilities: Mapping[str, Any] = {"sampling": {}}

    def send(self, message: Mapping[str, Any], *, needed: bool) -> None:
        """Encode the message, as a connection does."""
        del needed
        json.dumps(message)


def _server(client: ClientProcess) -> tuple[Any, ServerRun]:
    config = ServerConfig("srv", "stdio")
    clients = McpClients()
    clients.add(_Outside())
    server = Server(config, cast("Any", None), cast("Any", None), lambda _: None, clients)
    loop = asyncio.get_running_loop()
    return server, ServerRun(client, loop.create_future(), loop.create_future(), session=1)


async def _feed_mcp(data: bytes) -> str:
    """Feed the process that speaks MCP, with a session and a call that wait for it."""
    ours, theirs = socket.socketpair()
    theirs.close()
    client: Any = ClientProcess(cast("Any", _NoProcess()), StderrTail(), ours)
    wire_ = Wire()
    client.connection_made(wire_)
    server, run = _server(client)
    client._listeners[1] = _servers._Listener(server, run)
    messages: Any = CallMessages(1)
    client._calls[1] = messages
    try:
        for piece in cuts(data):
            if not wire_.closed:
                client.data_received(piece)
        while messages._ready:
            _read_call(*await messages.next())
    finally:
        client.end("the input is over")
        for task in list(server._ending):
            task.cancel()
    return "broke its protocol" if wire_.closed and client.up.done() and client.up.exception() else "ok"


def _read_call(head: dict[str, Any], body: bytes) -> None:
    """Read a message of a call as the server's part of the agent does."""
    _servers._progress(head.get("progress"))
    is_block(body)
    _servers._is_object(body)
    with suppress(RequestRefused):
        _requests._read(body)


def _make_tools(random: Random) -> bytes:
    page = {"tools": [varied(random, dict(_TOOL)) for _ in range(3)], "content": [varied(random, dict(_BLOCK))]}
    return encoded(random, varied(random, page))


def _feed_tools(data: bytes) -> str:
    """Read a server's tools and a result's blocks, of whatever JSON it sends."""
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(found, dict):
        return "not an object"
    page = cast("dict[str, Any]", found)
    listing = ToolListing()
    listing.take(page.get("tools"))
    json.loads(listing.encoded())
    for block in blocks_of(page):
        json.loads(block)
    return "ok"


def _make_replies(random: Random) -> bytes:
    reply: dict[str, Any] = {"id": 1, "up": True, "result": {}, "refused": "x", "failed": "x"}
    made = [frames.pack(encoded(random, random.choice((varied(random, reply), value(random))))) for _ in range(3)]
    data = b"".join(made)
    return mutated(random, data) if random.random() < 0.2 else data


class _NoHost:
    """A host of environments that is never there."""

    def kill(self, number: int) -> None:
        """Do nothing."""


async def _feed_replies(data: bytes) -> str:
    """Feed the program that drives a browser, and an instance of an environment."""
    wires = Wire(), Wire()
    browser: Any = BrowserProcess(cast("Any", _NoProcess()), StderrTail())
    instance: Any = InstanceProcess(cast("Any", _NoHost()), 1, Memory())
    browser.connection_made(wires[0])
    instance.connection_made(wires[1])
    try:
        for piece in cuts(data):
            for wire_, protocol in zip(wires, (browser, instance), strict=True):
                if not wire_.closed:
                    protocol.data_received(piece)
    finally:
        browser.connection_lost(None)
        instance.connection_lost(None)
        instance.kill()
        for end in (browser._stderr, instance._output):
            end.close_writer()
    return "ended" if wires[0].closed else "ok"


def _make_viewer(random: Random) -> bytes:
    made = [VERSION, b"\x01", b"\x01"]
    for _ in range(random.randint(1, 8)):
        kind = random.choice((0, 2, 3, 4, 5, 6, 150, 248, 250, 251, 255))
        made.append(bytes([kind]) + random.randbytes(random.choice((3, 5, 7, 9, 11, 19, 40))))
    data = b"".join(made)
    return mutated(random, data) if random.random() < 0.4 else data


def _feed_viewer(data: bytes) -> str:
    """Feed what a viewer of a desktop sends: with and without the right to act, in pieces and whole."""
    found: list[bytes] = []
    errors = 0
    for pieces in (cuts(data), [data]):
        messages, passed = RfbMessages(lambda: True), b""
        try:
            for piece in pieces:
                passed += messages.feed(piece)
        except BadMessage:
            errors += 1
        found.append(passed)
    if len(found[0]) > len(data) or errors == 1:
        raise Fault("what passes depends on where the bytes are cut")
    return "BadMessage" if errors else "ok"


TARGETS = (
    Target("kernel", _make_kernel, simple(_feed_kernel)),
    Target("kernel-fork", _make_fork, simple(_feed_fork)),
    Target("mcp-process", _make_mcp, simple(_feed_mcp)),
    Target("mcp-tools", _make_tools, simple(_feed_tools)),
    Target("helpers", _make_replies, simple(_feed_replies)),
    Target("screen", _make_viewer, simple(_feed_viewer)),
)
