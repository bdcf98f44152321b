"""A link to a sandbox's agent: one byte stream, which carries the frames of many channels.

The frames and their order are specified in protos/sandmesh/api/agent/v1/agent.proto. What an agent sends is bounded by
each call's window, so nothing here needs to stop reading: a slow caller slows its own call and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from google.protobuf.message import DecodeError

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.errors import DeadlineExceeded, ProtocolMismatch, SandboxLost, SandmeshError, from_detail
from sandmesh.shared import frames


class ChannelSubscriber(Protocol):
    """Receives what the agent sends on a channel."""

    def on_frame(self, frame: pb.FromAgent) -> None:
        """Handle a frame; `frame.final` marks the channel's last."""
        ...

    def on_lost(self, link: AgentLink) -> None:
        """Handle the loss of the link: nothing more comes on this channel."""
        ...


class AgentLink(asyncio.Protocol):
    """The client's end of a link.

    With a `silence` in seconds, an agent that sends nothing for so long while something is awaited counts as lost,
    unless `is_excused`, which is called from half of that on, returns True; it is pinged before.
    """

    def __init__(
        self,
        sandbox_id: str,
        on_closed: Callable[[AgentLink], None] | None = None,
        silence: float | None = None,
        is_excused: Callable[[AgentLink], bool] | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.fencing_token = 0
        self.error: SandmeshError | None = None
        """Why the link ended."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the transport is closed."""
        self._on_closed = on_closed
        self.heartbeat = AgentHeartbeat(self, silence, is_excused)
        """What finds out that the agent is dead."""
        self._transport: asyncio.Transport | None = None
        self._buffer = frames.FrameBuffer(frames.MAX_LINK_MESSAGE)
        self._subscribers: dict[int, ChannelSubscriber] = {}
        self._last_channel = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self.hello: asyncio.Future[pb.AgentHello] = asyncio.get_running_loop().create_future()
        """The agent's first frame."""

    @property
    def open(self) -> bool:
        """Whether hellos were exchanged and the link holds."""
        return self.hello.done() and self.error is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; `send_hello` sends the first frame."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Deliver the whole frames among the bytes received."""
        self.heartbeat.heard = asyncio.get_running_loop().time()
        try:
            for message in self._buffer.feed(data):
                frame = pb.FromAgent.FromString(message)
                if not self.hello.done():
                    self._check_hello(frame)
                    continue
                self.heartbeat.unanswered.discard(frame.channel)
                subscriber = self._subscribers.get(frame.channel)
                if subscriber is not None:
                    if frame.final:
                        del self._subscribers[frame.channel]
                    subscriber.on_frame(frame)
        except (frames.FrameTooLarge, DecodeError) as error:
            detail = {"detail": str(error)}
            self.fail(ProtocolMismatch(f"the agent of {self.sandbox_id} sent an invalid frame", detail))

    def pause_writing(self) -> None:
        """Block `drain`."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Release `drain`."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify every subscriber."""
        self.fail(SandboxLost(f"the agent of {self.sandbox_id} closed its link", {"detail": str(exc or "closed")}))
        if not self.closed.done():
            self.closed.set_result(None)

    def send_hello(self, agent_token: str) -> None:
        """Send the first frame; `greeted` waits for its answer."""
        hello = pb.GatewayHello(protocol=frames.LINK_PROTOCOL, sandbox_id=self.sandbox_id, agent_token=agent_token)
        self.send(pb.ToAgent(hello=hello))

    async def greeted(self, timeout: float) -> None:
        """Wait for the agent's hello.

        Raises:
            ProtocolMismatch: The agent speaks another protocol.
            SandboxLost: It is not that sandbox's agent, or does not answer.
        """
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self.hello)
        except TimeoutError:
            self.close()
            detail = {"detail": f"no hello within {timeout:g} s"}
            raise SandboxLost(f"the agent of {self.sandbox_id} does not answer", detail) from None

    def attach(self, subscriber: ChannelSubscriber, channel: int | None = None, *, counts: bool = True) -> int:
        """Deliver what comes on a channel, by default a new one, to a subscriber; return the channel.

        One that does not count neither delays the idle time of the sandbox nor ends a pause.
        """
        heartbeat = self.heartbeat
        heartbeat.busy = True
        if counts and not heartbeat.used:
            heartbeat.use()
        if heartbeat.rests:
            heartbeat.start()
        if channel is not None:
            self._subscribers[channel] = subscriber
            return channel
        self._last_channel = self._last_channel % 0xFFFFFFFF + 1
        if counts:
            heartbeat.unanswered.add(self._last_channel)
        self._subscribers[self._last_channel] = subscriber
        return self._last_channel

    def release(self, channel: int) -> None:
        """Release a channel; what still comes on it is dropped."""
        self._subscribers.pop(channel, None)
        self.heartbeat.unanswered.discard(channel)

    @property
    def is_awaited(self) -> bool:
        """Whether any channel is attached."""
        return bool(self._subscribers)

    def send(self, frame: pb.ToAgent) -> None:
        """Write a frame; on a broken link it goes nowhere, and `on_lost` reports that."""
        self.write([frame.SerializeToString()])

    def write(self, parts: Sequence[bytes]) -> None:
        """Write a serialized ToAgent, whose parts are copied once."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join([frames.prefix(sum(map(len, parts))), *parts]))

    @property
    def unsent(self) -> int:
        """The number of bytes that wait to be written."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    async def drain(self) -> None:
        """Wait until the agent took most of what was sent."""
        await self._writable.wait()

    def close(self, *, now: bool = False) -> None:
        """Close the link, immediately where `now`; else when what was sent has left."""
        if self._transport is None:
            return
        if now:
            self._transport.abort()
        elif not self._transport.is_closing():
            # One of TLS that is closed twice cannot be aborted any more.
            self._transport.close()

    def fail(self, error: SandmeshError) -> None:
        """End the link with an error; the first one counts."""
        self.error = self.error or error
        self.heartbeat.stop()
        self._writable.set()
        if not self.hello.done():
            self.hello.set_exception(error)
            self.hello.exception()  # it is in `error` too, for those who do not wait for the hello
        subscribers, self._subscribers = self._subscribers, {}
        self.heartbeat.unanswered.clear()
        for subscriber in subscribers.values():
            subscriber.on_lost(self)
        self.close()
        if self._on_closed is not None:
            self._on_closed(self)

    def _check_hello(self, frame: pb.FromAgent) -> None:
        if frame.HasField("error"):
            self.fail(from_detail(frame.error))
        elif self.sandbox_id not in ("", frame.hello.sandbox_id):
            self.fail(SandboxLost(f"another sandbox answers at the address of {self.sandbox_id}"))
        elif frame.hello.protocol != frames.LINK_PROTOCOL:
            spoken = f"protocol {frame.hello.protocol}, not {frames.LINK_PROTOCOL}"
            self.fail(ProtocolMismatch(f"the agent of {self.sandbox_id} speaks {spoken}"))
        else:
            self.hello.set_result(frame.hello)
            self.heartbeat.start()


class AgentHeartbeat:
    """Pings an agent that sends nothing while something is awaited of it, and gives it up in the end.

    It rests while nothing is: of most links of a mesh nothing is awaited most of the time.
    """

    def __init__(self, link: AgentLink, silence: float | None, is_excused: Callable[[AgentLink], bool] | None) -> None:
        self.heard = 0.0
        """When the agent was last heard, by the loop's clock."""
        self.unanswered: set[int] = set()
        """The channels, still attached, on which the agent has sent nothing yet."""
        self.used = False
        """Whether a channel was attached since this was last set to False."""
        self.busy = False
        """Whether a channel was attached since the last check."""
        self.on_use: Callable[[AgentLink], None] | None = None
        """Is called when a channel is attached and it was not in use."""
        self.rests = False
        """Whether the next channel has to start it again."""
        self._link = link
        self._silence = silence
        self._is_excused = is_excused
        self._timer: asyncio.TimerHandle | None = None

    def use(self) -> None:
        """Record that a channel is attached, for the first time since that was asked."""
        self.used = True
        if self.on_use is not None:
            self.on_use(self._link)

    def start(self) -> None:
        """Check from now on."""
        self.rests = False
        if self._silence is not None:
            loop = asyncio.get_running_loop()
            self.heard = loop.time()
            self._timer = loop.call_later(self._silence / 4, self._check, self._silence)

    def stop(self) -> None:
        """Check no more."""
        self.rests = False
        if self._timer is not None:
            self._timer.cancel()

    def _check(self, silence: float) -> None:
        loop, link = asyncio.get_running_loop(), self._link
        if self._timer is not None:
            # A delay of this process itself is not silence of the agent.
            self.heard += max(0.0, loop.time() - self._timer.when())
        silent = loop.time() - self.heard
        if not link.is_awaited:
            self.heard = loop.time()
            if not self.busy:
                self.rests = True
                return
        elif silent >= silence / 2 and self._is_excused is not None and self._is_excused(link):
            # Once it is not any more, it is pinged before it is given up.
            self.heard = loop.time() - silence / 2
        elif silent > silence:
            detail = {"detail": f"its agent was silent for {silent:.0f} s"}
            link.fail(SandboxLost(f"the agent of {link.sandbox_id} does not answer", detail))
            link.close(now=True)
            return
        elif silent >= silence / 4:
            link.send(pb.ToAgent(ping=pb.Ping()))
        self.busy = False
        self._timer = loop.call_later(silence / 4, self._check, silence)


class LinkChannel:
    """A channel of a link whose frames are awaited one by one; egress has the number 0."""

    def __init__(self, link: AgentLink, number: int | None = None, *, counts: bool = True) -> None:
        self._link = link
        self._frames: asyncio.Queue[pb.FromAgent | None] = asyncio.Queue()
        self.number = link.attach(self, number, counts=counts)

    def on_frame(self, frame: pb.FromAgent) -> None:
        """Queue a frame."""
        self._frames.put_nowait(frame)

    def on_lost(self, link: AgentLink) -> None:
        """Wake who waits."""
        self._frames.put_nowait(None)

    def send(self, frame: pb.ToAgent) -> None:
        """Send a frame on the channel."""
        frame.channel = self.number
        self._link.send(frame)

    async def receive(self) -> pb.FromAgent:
        """Return the next frame.

        Raises:
            SandmeshError: What the agent refused the channel with, or what ended the link.
        """
        error = self._link.error
        frame = None if error is not None and self._frames.empty() else await self._frames.get()
        if frame is None:
            self._frames.put_nowait(None)
            raise self._link.error or SandboxLost(f"the link to {self._link.sandbox_id} ended")
        if frame.HasField("error"):
            raise from_detail(frame.error)
        return frame

    def release(self) -> None:
        """Release the channel; what still comes on it is dropped."""
        self._link.release(self.number)


async def request(link: AgentLink, frame: pb.ToAgent, timeout: float) -> pb.FromAgent:
    """Send a frame that has one response, and return that.

    Raises:
        SandmeshError: What the agent refuses it with.
        SandboxLost: The link broke.
        DeadlineExceeded: There was no response in time.
    """
    channel = LinkChannel(link)
    try:
        channel.send(frame)
        async with asyncio.timeout(timeout):
            return await channel.receive()
    except TimeoutError:
        message = f"the agent of {link.sandbox_id} did not answer within {timeout:g} s"
        raise DeadlineExceeded(message, changed=True) from None
    finally:
        channel.release()
