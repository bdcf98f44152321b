"""Frames: of agents to the mesh, of the mesh to agents, and what carries them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.errors import SandboxLost
from sandmesh.shared import frames
from sandmesh.shared.websocket import WebSocketStream
from sandmesh.tools import RunShellCommand
from sandmeshd.agent.calls.call import Outcome, RunningCall, Timeouts
from sandmeshd.agent.calls.dispatcher import AgentIdentity, CallPolicy, Dispatcher, Retention
from sandmeshd.agent.calls.toolbox import Toolbox
from sandmeshd.agent.link.link import AgentEndpoint
from sandmeshd.agent.network.egress import Egress
from sandmeshd.agentlink.addresses import read_address
from sandmeshd.agentlink.link import AgentLink, LinkChannel
from sandmeshd.auth.principal import ADMIN
from sandmeshd.drivers.egress.link import EgressLink
from sandmeshd.drivers.egress.streams import Overrun, ProxyStream
from sandmeshd.gateway.calls.relay import Client, Relay
from sandmeshd.gateway.ports.tokens import TokenTarget
from sandmeshd.gateway.ports.tunnel import Tunnel
from sandmeshd.gateway.routes.routes import Routes
from tests.fuzz import target
from tests.fuzz.messages import Filler, wire
from tests.fuzz.mutation import encoded, mutated, value
from tests.fuzz.target import Fault, Feed, cuts

from .wire import Wire, inside, simple

_websocket = inside("sandmesh.shared.websocket")
_dialer = inside("sandmeshd.agentlink.websocket")
_agent_call = inside("sandmeshd.gateway.ports.agent_call")
_LIMIT = 4096
_SANDBOX, _TOKEN, _CALLS = "sb_fuzz", "token", ("one", "two", "three")
_HEAD = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: sandmesh.agent.v1\r\n\r\n"
)
_WORDS = (
    b"\r\n",
    b"\r\n\r\n",
    b": ",
    b"Upgrade: ",
    b"websocket",
    b"GET ",
    b"\xff",
    b"HTTP/1.1 101 X\r\n",
    b"HTTP/1.1 ",
)


def _make_frames(random: Random) -> bytes:
    """Make frames of any bytes, some longer than the limit."""
    made = [frames.pack(random.randbytes(random.choice((0, 1, 5, 300, _LIMIT, _LIMIT + 1)))) for _ in range(4)]
    data = b"".join(made[: random.randint(1, 4)])
    return mutated(random, data) if random.random() < 0.5 else data


def _feed_frames(data: bytes) -> str:
    """Cut frames: in pieces and whole must be the same."""
    found: list[list[bytes]] = []
    refused: list[bool] = []
    for pieces in (cuts(data), [data]):
        buffer, messages = frames.FrameBuffer(_LIMIT), list[bytes]()
        found.append(messages)
        try:
            for piece in pieces:
                messages.extend(buffer.feed(piece))
            refused.append(False)
        except frames.FrameTooLarge:
            refused.append(True)
    if found[0] != found[1] or refused[0] != refused[1]:
        raise Fault("frames depend on where their bytes are cut")
    return "FrameTooLarge" if refused[0] else "ok"


def _batch(random: Random) -> bytes:
    batch = call_pb2.CallEventBatch(call_id=random.choice(_CALLS))
    Filler(random, share=0.4).fill(batch)
    for event in batch.events:
        if event.HasField("result") and random.random() < 0.5:
            event.result.structured_json = encoded(random, value(random))
    return wire(random, batch)


def make_from_agent(random: Random) -> bytes:
    """Make what an agent sends: mostly a valid hello, then frames on channels in use."""
    hello = agent_pb2.FromAgent(hello=agent_pb2.AgentHello(protocol=1, sandbox_id=_SANDBOX, version="1"))
    made = [hello.SerializeToString() if random.random() < 0.9 else wire(random, _from_agent(random))]
    made += [wire(random, _from_agent(random)) for _ in range(random.randint(1, 6))]
    data = b"".join(map(frames.pack, made))
    return mutated(random, data) if random.random() < 0.1 else data


def _from_agent(random: Random) -> agent_pb2.FromAgent:
    frame = agent_pb2.FromAgent()
    Filler(random, share=0.3).fill(frame)
    frame.channel = random.choice((0, 1, 1, 2, 3, 4, 5, 2**32 - 1))
    if random.random() < 0.7:
        frame.batch = _batch(random)
    return frame


class _NoAllocator:
    """Answers that every sandbox is gone."""

    async def ResolveSandbox(self, request: object, timeout: float) -> Any:  # noqa: N802 - named as the RPC
        """Refuse."""
        del request, timeout
        raise SandboxLost("it is gone")


@asynccontextmanager
async def _open_gateway() -> AsyncGenerator[Feed]:
    routes = Routes(cast("Any", _NoAllocator()), 1.0)

    async def feed(data: bytes) -> str:
        link, wire_ = AgentLink(_SANDBOX), Wire()
        link.connection_made(wire_)
        routes.links[_SANDBOX], routes.session_keys[_SANDBOX] = link, "key"
        followed = _Followed(routes, link)
        try:
            for piece in cuts(data):
                link.data_received(piece)
        finally:
            followed.end(link)
        return type(link.error).__name__ if wire_.closed and link.error else "ok"

    yield feed


class _Followed:
    """A gateway's link that is followed in every way there is."""

    def __init__(self, routes: Routes, link: AgentLink) -> None:
        owned = routes.of(ADMIN)
        self._client, self._answer = Client(owned, 1.0, lambda response: None), _agent_call._ShortCaller()
        self._ask = Relay(owned, self._answer, _CALLS[1])
        self._tunnel = Tunnel(asyncio.Protocol(), lambda: None)
        self._client.take(call_pb2.MultiplexRequest(frames=[_start(_CALLS[0])]))
        self._ask.open(_start(_CALLS[1]), 1.0)
        self._tunnel.open(owned, TokenTarget(_SANDBOX, "e", 1, 2**32), 1.0)
        self._channel = LinkChannel(link)

    def end(self, link: AgentLink) -> None:
        """Follow it no more, then lose it."""
        self._client.detach()
        self._ask.detach()
        self._tunnel.close()
        self._channel.release()
        link.connection_lost(None)
        for future in (self._answer.result, self._tunnel.connected):
            if future.done() and not future.cancelled():
                future.exception()


def _start(call_id: str) -> call_pb2.CallFrame:
    start = call_pb2.CallStart(sandbox_id=_SANDBOX, call_id=call_id, tool="t")
    return call_pb2.CallFrame(call_id=call_id, start=start)


def _make_egress(random: Random) -> bytes:
    made: list[bytes] = []
    for _ in range(random.randint(1, 8)):
        frame = agent_pb2.EgressFrame()
        Filler(random, share=0.3).fill(frame)
        frame.stream = random.choice((0, 1, 1, 1, 2, 2**32 - 1))
        if random.random() < 0.4:
            frame.opened.SetInParent()
        elif random.random() < 0.3:
            frame.data = bytes(random.choice((1, 100, 65_536, 262_144, 262_145)))
        made.append(frame.SerializeToString())
    return b"".join(map(frames.pack, made))


async def _feed_egress(data: bytes) -> str:
    """Feed the driver's end of a sandbox's egress."""

    async def serve(stream: ProxyStream) -> None:
        try:
            while piece := await stream.read():
                await stream.write(piece)
            await stream.end()
        except ConnectionResetError:
            pass

    link = AgentLink(_SANDBOX)
    link.connection_made(Wire())
    egress: Any = EgressLink(cast("Any", None), serve)
    try:
        for message in frames.FrameBuffer(frames.MAX_LINK_MESSAGE).feed(data):
            egress._take(link, agent_pb2.EgressFrame.FromString(message))
            await asyncio.sleep(0)
    except Overrun:
        return "Overrun"
    finally:
        await egress._give_up()
    return "ok"


def make_to_agent(random: Random) -> bytes:
    """Make what a gateway sends, half of the time with the right token."""
    hello = agent_pb2.GatewayHello(protocol=1, sandbox_id=_SANDBOX, agent_token=_TOKEN)
    made = [agent_pb2.ToAgent(hello=hello).SerializeToString()] if random.random() < 0.8 else []
    for _ in range(random.randint(1, 6)):
        frame = agent_pb2.ToAgent()
        Filler(random, share=0.3).fill(frame)
        frame.channel = random.choice((0, 1, 2, 3))
        if random.random() < 0.8:
            call = frame.call.frame
            call.call_id = random.choice((*_CALLS, *_CALLS, "", "a" * 300))
            if random.random() < 0.5:
                call.start.sandbox_id, call.start.tool = _SANDBOX, random.choice(("run_shell_command", "none", ""))
                call.start.arguments = encoded(random, {"command": value(random)})
        made.append(wire(random, frame))
    data = b"".join(map(frames.pack, made))
    return (random.choice(_WORDS) if random.random() < 0.05 else b"") + data


@asynccontextmanager
async def _open_agent() -> AsyncGenerator[Feed]:
    async def run(command: RunShellCommand, call: RunningCall) -> Outcome:
        call.started(1)
        call.output(call_pb2.STREAM_STDOUT, json.dumps(command.command).encode()[:1000])
        return Outcome(exit_code=0)

    async def feed(data: bytes) -> str:
        identity, tools = AgentIdentity(_SANDBOX, _TOKEN, "fuzz"), Toolbox({RunShellCommand: run}, ["generic"])
        dispatcher = Dispatcher(identity, 0, lambda: tools, CallPolicy(Retention(), Timeouts(), None))
        link, wire_ = AgentEndpoint(dispatcher, Egress()), Wire()
        link.connection_made(wire_)
        try:
            for piece in cuts(data):
                link.data_received(piece)
                await asyncio.sleep(0)
        finally:
            link.connection_lost(None)
            await dispatcher.close()
        return "closed" if wire_.closed else "ok"

    yield feed


class _Inner(asyncio.Protocol):
    """Keeps how much it received."""

    received = 0

    def data_received(self, data: bytes) -> None:
        """Count."""
        self.received += len(data)


def _make_websocket(random: Random) -> bytes:
    sent, is_client = b"", random.random() < 0.5
    for _ in range(random.randint(1, 4)):
        key = random.randbytes(4) if is_client else b""
        payload = random.randbytes(random.choice((0, 1, 125, 126, 127, 65_536, 70_000)))
        opcode = 2 if len(payload) > 125 or random.random() < 0.6 else random.choice((0, 1, 8, 9, 10, 11))
        sent += (
            _websocket._header(opcode, len(payload), key) + key + (_websocket._mask(payload, key) if key else payload)
        )
    return mutated(random, sent) if random.random() < 0.8 else sent


def _feed_websocket(data: bytes) -> str:
    """Feed both ends: what is received is never more than what came."""
    closed = 0
    for is_client in (True, False):
        inner, wire_ = _Inner(), Wire()
        stream = WebSocketStream(wire_, inner, is_client=is_client)
        for piece in cuts(data):
            if not wire_.closed:
                stream.feed(piece)
        if inner.received > len(data) or wire_.sent > 4 * len(data) + 400:
            raise Fault(f"{len(data)} bytes became {inner.received} and {wire_.sent}")
        closed += wire_.closed
    return "ProtocolError" if closed == 2 else "ok"


def _make_upgrade(random: Random) -> bytes:
    response = b"HTTP/1.1 101 Switching Protocols\r\n" + _HEAD.partition(b"\r\n")[2]
    head = random.choice((_HEAD, _HEAD, response))
    rest = b"" if random.random() < 0.5 else _make_websocket(random)[:1000]
    return (mutated(random, head, _WORDS) if random.random() < 0.8 else head) + rest


async def _feed_upgrade(data: bytes) -> str:
    """Feed a head of HTTP to an agent's address, and to whoever dials one."""
    identity = AgentIdentity(_SANDBOX, _TOKEN, "fuzz")
    dispatcher = Dispatcher(identity, 0, lambda: Toolbox({}, []), CallPolicy(Retention(), Timeouts(), None))
    link, upgrade = (
        AgentEndpoint(dispatcher, None),
        _dialer._Upgrade(read_address("wss://localhost:1/x"), AgentLink(_SANDBOX), 20.0),
    )
    wires = Wire(), Wire()
    link.connection_made(wires[0])
    upgrade.connection_made(wires[1])
    for piece in cuts(data):
        for wire_, first in ((wires[0], link), (wires[1], upgrade)):
            if not wire_.closed:
                cast("asyncio.Protocol", wire_.protocol or first).data_received(piece)
    cast("asyncio.Protocol", wires[0].protocol or link).connection_lost(None)
    upgrade.connection_lost(None)
    await dispatcher.close()
    if upgrade.done.done():
        upgrade.done.exception()
    return "refused" if wires[0].closed else "ok"


TARGETS = (
    target.Target("frames", _make_frames, simple(_feed_frames)),
    target.Target("agent-frames", make_from_agent, _open_gateway),
    target.Target("egress-frames", _make_egress, simple(_feed_egress)),
    target.Target("agent-link", make_to_agent, _open_agent),
    target.Target("websocket", _make_websocket, simple(_feed_websocket)),
    target.Target("upgrade", _make_upgrade, simple(_feed_upgrade)),
)
