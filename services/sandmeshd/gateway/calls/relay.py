"""Calls on their way between a caller and agents: frames go to the agent, events come back.

MultiplexResponse, RunCallResponse, OpenCallResponse and AttachCallResponse all hold one CallEventBatch in field 1, so
an agent's serialized batch becomes any of them, unparsed, by the field's tag and its length before it.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import DeadlineExceeded, InvalidArgument, SandmeshError, TooLarge, WrongState, to_detail
from sandmesh.shared import bulk_frames
from sandmesh.shared.frames import varint
from sandmeshd.agentlink.link import AgentLink
from sandmeshd.gateway.routes.call_meters import CallMeter
from sandmeshd.gateway.routes.routes import OwnedRoutes
from sandmeshd.runtime.retry import CALL_SECONDS

log = structlog.get_logger()

CHUNK = 1024 * 1024
MAX_UNSENT = 80 * CHUNK

_BATCH = bulk_frames.tag(pb.MultiplexResponse.DESCRIPTOR, "batch")
_MORE = bulk_frames.tag(pb.MultiplexResponse.DESCRIPTOR, "more")
_CALL = bulk_frames.tag(agent_pb2.ToAgent.DESCRIPTOR, "call")
_FRAME = bulk_frames.tag(agent_pb2.Fenced.DESCRIPTOR, "frame")

_REQUESTS = frozenset({"input", "signal", "resize"})
"""What a caller sends in a call that is to be answered, and so resumes a paused sandbox."""


class Subscriber(Protocol):
    """Who gets the events."""

    def deliver(self, call: Relay, response: bytes, last_sequence: int) -> None:
        """Take a serialized response, in order."""
        ...

    def ended(self, call: Relay, error: SandmeshError | None) -> None:
        """Learn that nothing more comes: the result was delivered, or the call was refused with `error`."""
        ...


@dataclass
class _Backlog:
    """Frames that wait for a link, for how long where the store is away, and the task that opens it."""

    frames: list[pb.CallFrame] = field(default_factory=list[pb.CallFrame])
    seconds: float = CALL_SECONDS
    connecting: asyncio.Task[None] | None = None


class Relay:
    """Carries one call between a caller and the agent that runs it.

    Frames are queued until the link is open. When the link breaks, the call is attached again
    after the last event that came; when that cannot be, it ends with SandboxLost. A client's calls are `counted`
    against quotas; what the gateway asks for itself, and connections to ports, are not.
    """

    def __init__(self, routes: OwnedRoutes, subscriber: Subscriber, call_id: str, *, counted: bool = False) -> None:
        self.call_id = call_id
        self.sandbox_id = ""
        self.over = False
        self._routes = routes
        self._subscriber = subscriber
        self._token = 0
        self._last = 0
        self._channel = 0
        self._link: AgentLink | None = None
        self._backlog = _Backlog()
        self._timer: asyncio.TimerHandle | None = None
        self._meter = CallMeter(routes.metrics, None if counted else ())

    def open(self, frame: pb.CallFrame, grace: float) -> None:
        """Begin with a `start` or `attach` frame; a call may take `grace` seconds beyond its own timeout.

        It is refused where it begins with another frame, or names no sandbox.
        """
        self._routes.metrics.followed += 1
        kind = frame.WhichOneof("frame")
        if kind not in ("start", "attach"):
            message = f"the first frame of a call is start or attach, not {kind}"
            self.refuse(InvalidArgument(message, {"call_id": self.call_id}))
            return
        first = frame.start if kind == "start" else frame.attach
        if not first.sandbox_id or not self.call_id:
            self.refuse(InvalidArgument(f"{kind} needs a sandbox_id and a call_id"))
            return
        if kind == "start" and frame.start.arguments_json and not _take_text(frame.start):
            self.refuse(InvalidArgument("a call has arguments or arguments_json, not both", {"call_id": self.call_id}))
            return
        self.sandbox_id, self._token = first.sandbox_id, first.fencing_token
        first.call_id = self.call_id
        ids = {"sandbox_id": self.sandbox_id, "call_id": self.call_id}
        log.debug("a call is followed", **ids, begins_by=kind, tool=frame.start.tool)
        if kind == "attach":
            self._last = frame.attach.after_sequence
        else:
            self._meter.started(frame.start)
            if frame.start.HasField("timeout"):
                seconds = frame.start.timeout.ToNanoseconds() / 1e9
                self._backlog.seconds = min(seconds, CALL_SECONDS)
                self._timer = asyncio.get_running_loop().call_later(seconds + grace, self._expire)
        link = self._routes.known(self.sandbox_id)
        if self._meter.slots is None and link is not None:
            self._meter.slots = self._routes.quotas.enter(self.sandbox_id, running=kind == "attach")
        if link is None or self._meter.slots is None:
            self._backlog.frames.append(frame)
            context = None if self._meter.trace is None else self._meter.trace.task_context()
            self._backlog.connecting = asyncio.create_task(self._connect(), context=context)
        else:
            self._link, self._channel = link, link.attach(self)
            self._forward(frame, link)

    def push(self, frame: pb.CallFrame) -> None:
        """Send a further frame of the caller's; of a call that is over the agent asks for none."""
        if self.over:
            return
        if frame.HasField("input"):
            self._routes.metrics.received.inc(len(frame.input.data))
        if self._link is None:
            self._backlog.frames.append(frame)
        else:
            self._forward(frame, self._link)
            if frame.WhichOneof("frame") in _REQUESTS:
                self._routes.resume_soon(self.sandbox_id)

    def push_input(self, frame: bytes) -> None:
        """Send a serialized frame with input, which is not parsed here."""
        link = self._link
        if self.over:
            return
        if link is None or link.unsent > MAX_UNSENT:
            self.push(pb.CallFrame.FromString(frame))
            return
        self._routes.metrics.received.inc(len(frame))
        link.write(_fence(self._channel, self._token, frame))
        self._routes.resume_soon(self.sandbox_id)

    def acknowledge(self, sequence: int, *, keep: bool = False) -> None:
        """Acknowledge all events up to one to the agent, or, to `keep` them, only give it credit for more."""
        if sequence:
            acknowledge = pb.Acknowledge(sequence=sequence, keep=keep)
            self.push(pb.CallFrame(call_id=self.call_id, acknowledge=acknowledge))

    def detach(self) -> None:
        """Detach the caller; the call goes on."""
        if not self.over and self._link is not None:
            self._send(pb.CallFrame(call_id=self.call_id, detach=pb.Detach()), self._link)
        self._finish()

    async def drain(self) -> None:
        """Wait until the agent took most of what was sent."""
        if self._backlog.connecting is not None:
            await asyncio.wait([self._backlog.connecting])
        if self._link is not None:
            await self._link.drain()

    def on_frame(self, frame: agent_pb2.FromAgent) -> None:
        """Pass events on."""
        if frame.last_sequence:
            self._last = frame.last_sequence
        batch = frame.batch
        self._routes.metrics.sent.inc(len(batch))
        self._subscriber.deliver(self, _BATCH + varint(len(batch)) + batch, frame.last_sequence)
        if frame.final:
            self._link = None  # which has released the channel
            reason = self._meter.ended(frame)
            if reason == "OUT_OF_MEMORY":
                self._routes.note_out_of_memory(self.sandbox_id)
            log.debug("a call ended", sandbox_id=self.sandbox_id, call_id=self.call_id, reason=reason)
            self._finish()
            # A last frame without an event holds the agent's refusal.
            self._subscriber.ended(self, None if frame.last_sequence else WrongState("the agent refused the call"))

    def on_lost(self, link: AgentLink) -> None:
        """Attach again on a new link."""
        if self.over or self._link is not link:
            return
        self._link = None
        ids = {"sandbox_id": self.sandbox_id, "call_id": self.call_id}
        attach = pb.Attach(**ids, after_sequence=self._last, fencing_token=self._token, keep=True)
        self._backlog.frames.insert(0, pb.CallFrame(call_id=self.call_id, attach=attach))
        self._backlog.connecting = asyncio.create_task(self._connect(again=True))

    async def _connect(self, *, again: bool = False) -> None:
        try:
            find = self._routes.link_again if again else self._routes.link
            link = await find(self.sandbox_id, self._backlog.seconds)
            if self._meter.slots is None:
                running = self._backlog.frames[0].HasField("attach")
                self._meter.slots = await self._routes.quotas.admit(self.sandbox_id, running=running)
            while not link.open and not self.over:
                link = await self._routes.link_again(self.sandbox_id)
        except SandmeshError as error:
            self.refuse(error)
            return
        if self.over:
            return
        self._link, self._channel = link, link.attach(self)
        waiting, self._backlog.frames = self._backlog.frames, []
        for frame in waiting:
            self._forward(frame, link)

    def _forward(self, frame: pb.CallFrame, link: AgentLink) -> None:
        chunks: Sequence[pb.CallFrame] = ()
        if link.unsent > MAX_UNSENT:
            self.refuse(TooLarge("input came faster than the sandbox takes it: wait for input_ack_sequence"))
            return
        if frame.HasField("start"):
            self._token = frame.start.fencing_token = frame.start.fencing_token or link.fencing_token
            if self._meter.trace is not None:
                self._meter.trace.forwarded(frame.start)
            if len(frame.start.arguments) > CHUNK:
                chunks = _split(frame)
        elif frame.HasField("attach") and not frame.attach.fencing_token:
            frame.attach.fencing_token = link.fencing_token
        self._send(frame, link)
        for chunk in chunks:
            self._send(chunk, link)

    def _send(self, frame: pb.CallFrame, link: AgentLink) -> None:
        fenced = agent_pb2.Fenced(frame=frame, fencing_token=self._token)
        link.write([agent_pb2.ToAgent(channel=self._channel, call=fenced).SerializeToString()])

    def _expire(self) -> None:
        if self._link is not None:
            self._send(pb.CallFrame(call_id=self.call_id, cancel=pb.Cancel()), self._link)
        message = "the sandbox did not end the call at its deadline; it was told to cancel it"
        self.refuse(DeadlineExceeded(message, changed=True))

    def refuse(self, error: SandmeshError) -> None:
        """End the call with an error."""
        if self.over:
            return
        self._meter.refused(error)
        ids = {"sandbox_id": self.sandbox_id, "call_id": self.call_id}
        log.info("a call was refused", **ids, reason=error.reason, error=error.message)
        self._finish()
        batch = pb.CallEventBatch(call_id=self.call_id, error=to_detail(error))
        self._subscriber.deliver(self, pb.MultiplexResponse(batch=batch).SerializeToString(), 0)
        self._subscriber.ended(self, error)

    def _finish(self) -> None:
        if self.over:
            return  # A subscriber may detach while its last response is delivered.
        self.over = True
        self._routes.metrics.followed -= 1
        if self._meter.trace is not None:
            self._meter.trace.end("DETACHED")
        for meter in self._meter.slots or ():
            meter.calls -= 1
        if self._timer is not None:
            self._timer.cancel()
        if self._link is not None:
            self._link.release(self._channel)
        connecting = self._backlog.connecting
        if connecting is not None and connecting is not asyncio.current_task():
            connecting.cancel()


def _split(frame: pb.CallFrame) -> Sequence[pb.CallFrame]:
    """Leave the first chunk of its arguments to a start; return frames with the rest."""
    start, arguments = frame.start, frame.start.arguments
    start.arguments_size = start.arguments_size or len(arguments)
    start.arguments = arguments[:CHUNK]
    rest = [arguments[offset : offset + CHUNK] for offset in range(CHUNK, len(arguments), CHUNK)]
    return [pb.CallFrame(call_id=frame.call_id, argument_chunk=pb.ArgumentChunk(data=data)) for data in rest]


def _take_text(start: pb.CallStart) -> bool:
    """Move the arguments that are text to those that are bytes; return False where both are there."""
    if start.arguments or start.arguments_size:
        return False
    start.arguments = start.arguments_json.encode()
    start.ClearField("arguments_json")
    return True


def _fence(channel: int, token: int, frame: bytes) -> list[bytes]:
    """Make a ToAgent of a serialized CallFrame, in parts."""
    fenced = [agent_pb2.Fenced(fencing_token=token).SerializeToString(), *bulk_frames.field(_FRAME, [frame])]
    return [agent_pb2.ToAgent(channel=channel).SerializeToString(), *bulk_frames.field(_CALL, fenced)]


def join(responses: Sequence[bytes]) -> bytes:
    """Make one response to Multiplex of several serialized ones, unparsed: of each its batch, or nothing."""
    first, *others = [response for response in responses if response] or [b""]
    return first + b"".join(_MORE + response[len(_BATCH) :] for response in others)


class Client:
    """The caller of all calls of a multiplexed stream, whose serialized responses go to `send`."""

    def __init__(self, routes: OwnedRoutes, grace: float, send: Callable[[bytes], None]) -> None:
        self._routes = routes
        self._grace = grace
        self._send = send
        self._relays: dict[str, Relay] = {}

    def take(self, request: pb.MultiplexRequest) -> None:
        """Route frames to their calls; an empty request asks whether the connection lives."""
        for frame in request.frames:
            relay = self._relays.get(frame.call_id)
            if frame.HasField("start") or frame.HasField("attach"):
                if relay is not None:
                    relay.detach()
                relay = self._relays[frame.call_id] = Relay(self._routes, self, frame.call_id, counted=True)
                relay.open(frame, self._grace)
            elif relay is None:
                continue  # The call is over: the frame crossed its result.
            elif frame.HasField("detach"):
                relay.detach()
                del self._relays[frame.call_id]
            else:
                relay.push(frame)
        if not request.frames:
            self._send(b"")

    def take_input(self, call_id: str, frame: bytes) -> None:
        """Route a serialized frame with input, as `take` does."""
        relay = self._relays.get(call_id)
        if relay is not None:
            relay.push_input(frame)

    def deliver(self, call: Relay, response: bytes, last_sequence: int) -> None:
        """Send a response."""
        self._send(response)

    def ended(self, call: Relay, error: SandmeshError | None) -> None:
        """Forget a call that is over: what its client still sends for it is dropped."""
        if self._relays.get(call.call_id) is call:
            del self._relays[call.call_id]

    def detach(self) -> None:
        """Detach from every call; the calls go on."""
        for relay in list(self._relays.values()):
            relay.detach()
        self._relays.clear()
