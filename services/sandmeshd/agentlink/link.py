"""One long-lived stream to one agent, which carries the frames of all calls.

The frames and their order are specified in protos/sandmesh/api/agent/v1/agent.proto. What an agent sends is bounded by
each call's window, so nothing here needs to stop reading: a slow caller slows its own call and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.errors import (
    DeadlineExceeded,
    ProtocolMismatch,
    SandboxLost,
    SandmeshError,
    from_detail,
)
from sandmesh.shared import frames
from sandmeshd.agentlink.addresses import AgentAddress, read_address


class Sink(Protocol):
    """Who takes what the agent sends on a channel."""

    def on_frame(self, frame: pb.FromAgent) -> None:
        """Take a frame; `frame.final` is the channel's last."""
        ...

    def on_lost(self, link: AgentLink) -> None:
        """Learn that the link broke: nothing more comes on this channel."""
        ...


class AgentLink(asyncio.Protocol):
    """The gateway's side of a link."""

    def __init__(
        self, sandbox_id: str, fencing_token: int, on_closed: Callable[[AgentLink], None], silence: float = 15.0
    ) -> None:
        self.sandbox_id = sandbox_id
        self.fencing_token = fencing_token
        self.open = False
        self._on_closed = on_closed
        self._silence = silence
        self._heard = 0.0
        self._beat: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = frames.FrameBuffer(frames.MAX_LINK_MESSAGE)
        self._sinks: dict[int, Sink] = {}
        self._next_channel = 0
        self._used = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; `say_hello` sends the first frame."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes and deliver the whole frames among them."""
        self._heard = asyncio.get_running_loop().time()
        try:
            for message in self._buffer.feed(data):
                self._deliver(pb.FromAgent.FromString(message))
        except frames.FrameTooLarge as error:
            self._fail(ProtocolMismatch(f"the agent of {self.sandbox_id} broke the protocol: {error}"))

    def pause_writing(self) -> None:
        """Make writers of bulk wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let them go on."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every channel."""
        self._fail(SandboxLost(f"the agent of {self.sandbox_id} closed its link", {"detail": str(exc or "closed")}))

    # What the gateway calls.

    async def say_hello(self, agent_token: str, timeout: float) -> None:
        """Open the link.

        Raises:
            ProtocolMismatch: The agent speaks another protocol.
            SandboxLost: It is not that sandbox's agent, or does not answer.
        """
        hello = pb.GatewayHello(protocol=frames.LINK_PROTOCOL, sandbox_id=self.sandbox_id, agent_token=agent_token)
        self.send(pb.ToAgent(hello=hello))
        try:
            async with asyncio.timeout(timeout):
                await self._hello
        except TimeoutError:
            self.close()
            detail = {"detail": f"no hello within {timeout:g} s"}
            raise SandboxLost(f"the agent of {self.sandbox_id} does not answer", detail) from None

    def attach(self, sink: Sink) -> int:
        """Give a new channel to a sink."""
        self._used = True
        self._next_channel = self._next_channel % 0xFFFFFFFF + 1
        self._sinks[self._next_channel] = sink
        return self._next_channel

    def take_used(self) -> bool:
        """Say whether it carried anything since this was last asked, or does now."""
        used, self._used = self._used or bool(self._sinks), False
        return used

    def release(self, channel: int) -> None:
        """Let a channel go; what still comes on it is dropped."""
        self._sinks.pop(channel, None)

    def send(self, frame: pb.ToAgent) -> None:
        """Write a frame; on a broken link it goes nowhere, and `on_lost` tells."""
        self.send_parts([frame.SerializeToString()])

    def send_parts(self, parts: Sequence[bytes]) -> None:
        """Write a serialized ToAgent, whose parts are copied once."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join([frames.prefix(sum(map(len, parts))), *parts]))

    @property
    def unsent(self) -> int:
        """How many bytes wait to be written."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    async def drain(self) -> None:
        """Wait until the agent took most of what was sent."""
        await self._writable.wait()

    async def ask(self, frame: pb.ToAgent, timeout: float) -> pb.FromAgent:
        """Send a frame that has one answer, and give it.

        Raises:
            SandmeshError: What the agent refuses it with.
            SandboxLost: The link broke.
            DeadlineExceeded: There was no answer in time.
        """
        answer = _Answer()
        frame.channel = self.attach(answer)
        try:
            self.send(frame)
            async with asyncio.timeout(timeout):
                return await answer.future
        except TimeoutError:
            message = f"the agent of {self.sandbox_id} did not answer within {timeout:g} s"
            raise DeadlineExceeded(message, changed=True) from None
        finally:
            self.release(frame.channel)

    def close(self) -> None:
        """Close the link."""
        if self._transport is not None:
            self._transport.close()

    def _deliver(self, frame: pb.FromAgent) -> None:
        if not self._hello.done():
            self._greet(frame)
            return
        sink = self._sinks.get(frame.channel)
        if sink is not None:
            if frame.final:
                self.release(frame.channel)
            sink.on_frame(frame)

    def _greet(self, frame: pb.FromAgent) -> None:
        kind = frame.WhichOneof("body")
        if kind == "hello" and frame.hello.sandbox_id == self.sandbox_id:
            self.open = True
            self._hello.set_result(None)
            self._listen()
        elif kind == "error":
            self._hello.set_exception(from_detail(frame.error))
        else:
            self._fail(SandboxLost(f"another sandbox answers at the address of {self.sandbox_id}"))

    def _listen(self) -> None:
        """Ask an agent that says nothing whether it lives, while something is awaited of it."""
        loop = asyncio.get_running_loop()
        if self._beat is not None:
            # What held up this process itself is no silence of the agent's.
            self._heard += max(0.0, loop.time() - self._beat.when())
        silent = loop.time() - self._heard
        if not self._sinks:
            self._heard = loop.time()
        elif silent > self._silence:
            detail = {"detail": f"its agent was silent for {silent:.0f} s"}
            self._fail(SandboxLost(f"the agent of {self.sandbox_id} does not answer", detail))
            if self._transport is not None:
                self._transport.abort()
            return
        elif silent >= self._silence / 4:
            self.send(pb.ToAgent(ping=pb.Ping()))
        self._beat = loop.call_later(self._silence / 4, self._listen)

    def _fail(self, error: SandmeshError) -> None:
        self.open = False
        if self._beat is not None:
            self._beat.cancel()
        self._writable.set()
        if not self._hello.done():
            self._hello.set_exception(error)
        sinks, self._sinks = self._sinks, {}
        for sink in sinks.values():
            sink.on_lost(self)
        self.close()
        self._on_closed(self)


class _Answer:
    """The sink of a question with one answer."""

    def __init__(self) -> None:
        self.future: asyncio.Future[pb.FromAgent] = asyncio.get_running_loop().create_future()

    def on_frame(self, frame: pb.FromAgent) -> None:
        if self.future.done():
            return
        if frame.HasField("error"):
            self.future.set_exception(from_detail(frame.error))
        else:
            self.future.set_result(frame)

    def on_lost(self, link: AgentLink) -> None:
        if not self.future.done():
            self.future.set_exception(SandboxLost(f"{link.sandbox_id} ended before it answered"))


async def _over_network(address: AgentAddress, link: Callable[[], AgentLink]) -> AgentLink:
    loop = asyncio.get_running_loop()
    transport, made = await loop.create_connection(link, address.host, address.port, ssl=address.tls)
    try:
        address.check(transport)
    except ConnectionError:
        transport.abort()
        raise
    return made


async def connect(endpoint: str, link: Callable[[], AgentLink], agent_token: str, timeout: float) -> AgentLink:
    """Connect to an agent's endpoint, as `read_address` reads it, and exchange hellos.

    Raises:
        SandboxLost: Nothing answers there.
        ProtocolMismatch: The agent speaks another protocol.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            address = read_address(endpoint)
            if address.path:
                _, made = await loop.create_unix_connection(link, address.path)
            else:
                made = await _over_network(address, link)
    except (OSError, TimeoutError) as error:
        raise SandboxLost("the sandbox's agent does not answer", {"detail": str(error) or "time-out"}) from None
    await made.say_hello(agent_token, timeout)
    return made
