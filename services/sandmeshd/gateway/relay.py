"""One caller's view of one call: frames go to the agent, events come back, a broken link is mended if it can be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import DeadlineExceeded, InvalidArgument, SandmeshError, TooLarge, WrongState
from sandmeshd.agentlink.link import AgentLink
from sandmeshd.gateway.meter import CallMeter
from sandmeshd.gateway.routes import OwnedRoutes
from sandmeshd.gateway.wire import fence, refusal, wrap

log = structlog.get_logger()

CHUNK = 1024 * 1024
MAX_UNSENT = 80 * CHUNK


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
    """Frames that wait for a link, and the task that opens it."""

    frames: list[pb.CallFrame] = field(default_factory=list[pb.CallFrame])
    connecting: asyncio.Task[None] | None = None


class Relay:
    """Carries one call between a caller and the agent that runs it.

    Frames that come before the link is open wait for it in order. When the link breaks, the call is attached again
    after the last event that came; when that cannot be, it ends with SandboxLost.
    """

    def __init__(self, routes: OwnedRoutes, subscriber: Subscriber, call_id: str) -> None:
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
        self._meter = CallMeter(routes.metrics)

    def open(self, frame: pb.CallFrame, grace: float) -> None:
        """Begin with a `start` or `attach` frame; a call may take `grace` seconds beyond its own timeout.

        Raises:
            InvalidArgument: It is another frame, or names no sandbox.
        """
        kind = frame.WhichOneof("frame")
        if kind not in ("start", "attach"):
            raise InvalidArgument(
                f"the first frame of a call is start or attach, not {kind}", {"call_id": self.call_id}
            )
        first = frame.start if kind == "start" else frame.attach
        if not first.sandbox_id or not self.call_id:
            raise InvalidArgument(f"{kind} needs a sandbox_id and a call_id")
        self.sandbox_id, self._token = first.sandbox_id, first.fencing_token
        first.call_id = self.call_id
        self._meter.follow(frame.start if kind == "start" else None)
        tool = frame.start.tool if kind == "start" else ""
        log.debug("a call is followed", sandbox_id=self.sandbox_id, call_id=self.call_id, begins_by=kind, tool=tool)
        if kind == "start":
            self._set_deadline(frame.start, grace)
        else:
            self._last = frame.attach.after_sequence
        link = self._routes.known(self.sandbox_id)
        if link is None:
            self._backlog.frames.append(frame)
            self._backlog.connecting = asyncio.create_task(self._connect())
        else:
            self._use(link)
            self._forward(frame)

    def push(self, frame: pb.CallFrame) -> None:
        """Send a further frame of the caller's; of a call that is over the agent asks for none."""
        if self.over:
            return
        if frame.HasField("input"):
            self._meter.gave(len(frame.input.data))
        if self._link is None:
            self._backlog.frames.append(frame)
        else:
            self._forward(frame)

    def push_input(self, frame: bytes) -> None:
        """Send a serialized frame with input, which is not parsed here."""
        link = self._link
        if self.over:
            return
        if link is None or link.unsent > MAX_UNSENT:
            self.push(pb.CallFrame.FromString(frame))
            return
        self._meter.gave(len(frame))
        link.send_parts(fence(self._channel, self._token, frame))

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge all events up to one to the agent."""
        if sequence:
            self.push(pb.CallFrame(call_id=self.call_id, acknowledge=pb.Acknowledge(sequence=sequence)))

    def detach(self) -> None:
        """Detach the caller; the call goes on."""
        if not self.over and self._link is not None:
            self._send(pb.CallFrame(call_id=self.call_id, detach=pb.Detach()))
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
        self._meter.took(len(frame.batch))
        self._subscriber.deliver(self, wrap(frame.batch), frame.last_sequence)
        if frame.final:
            reason = self._meter.ended(frame.end_reason)
            log.debug("a call ended", sandbox_id=self.sandbox_id, call_id=self.call_id, reason=reason)
            self._finish()
            # A last frame without an event holds the agent's refusal.
            self._subscriber.ended(self, None if frame.last_sequence else WrongState("the agent refused the call"))

    def on_lost(self, link: AgentLink) -> None:
        """Attach again on a new link."""
        if self.over or self._link is not link:
            return
        self._link = None
        attach = pb.Attach(sandbox_id=self.sandbox_id, call_id=self.call_id, after_sequence=self._last)
        attach.fencing_token = self._token
        self._backlog.frames.insert(0, pb.CallFrame(call_id=self.call_id, attach=attach))
        self._backlog.connecting = asyncio.create_task(self._connect(again=True))

    async def _connect(self, *, again: bool = False) -> None:
        try:
            link = await (self._routes.link_again if again else self._routes.link)(self.sandbox_id)
            while not link.open and not self.over:
                link = await self._routes.link_again(self.sandbox_id)
        except SandmeshError as error:
            self.refuse(error)
            return
        if self.over:
            return
        self._use(link)
        waiting, self._backlog.frames = self._backlog.frames, []
        for frame in waiting:
            self._forward(frame)

    def _use(self, link: AgentLink) -> None:
        self._link, self._channel = link, link.attach(self)

    def _forward(self, frame: pb.CallFrame) -> None:
        link = self._link
        if link is None:
            return
        if link.unsent > MAX_UNSENT:
            self.refuse(TooLarge("input came faster than the sandbox takes it: wait for input_ack_sequence"))
        elif frame.HasField("start"):
            self._send_start(frame, link)
        else:
            if frame.HasField("attach") and not frame.attach.fencing_token:
                frame.attach.fencing_token = link.fencing_token
            self._send(frame)

    def _send_start(self, frame: pb.CallFrame, link: AgentLink) -> None:
        start = frame.start
        self._token = start.fencing_token = start.fencing_token or link.fencing_token
        arguments = start.arguments
        if len(arguments) <= CHUNK:
            self._send(frame)
            return
        start.arguments_size = start.arguments_size or len(arguments)
        start.arguments = arguments[:CHUNK]
        self._send(frame)
        for offset in range(CHUNK, len(arguments), CHUNK):
            chunk = pb.ArgumentChunk(data=arguments[offset : offset + CHUNK])
            self._send(pb.CallFrame(call_id=self.call_id, argument_chunk=chunk))

    def _send(self, frame: pb.CallFrame) -> None:
        if self._link is not None:
            fenced = agent_pb2.Fenced(frame=frame, fencing_token=self._token)
            self._link.send(agent_pb2.ToAgent(channel=self._channel, call=fenced))

    def _set_deadline(self, start: pb.CallStart, grace: float) -> None:
        if start.HasField("timeout"):
            seconds = start.timeout.ToNanoseconds() / 1e9 + grace
            self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._send(pb.CallFrame(call_id=self.call_id, cancel=pb.Cancel()))
        message = "the sandbox did not end the call at its deadline; it was told to cancel it"
        self.refuse(DeadlineExceeded(message, changed=True))

    def refuse(self, error: SandmeshError) -> None:
        """End the call with an error."""
        if self.over:
            return
        self._meter.refused(error.reason)
        ids = {"sandbox_id": self.sandbox_id, "call_id": self.call_id}
        log.info("a call was refused", **ids, reason=error.reason, error=error.message)
        self._finish()
        self._subscriber.deliver(self, refusal(self.call_id, error), 0)
        self._subscriber.ended(self, error)

    def _finish(self) -> None:
        self.over = True
        self._meter.left()
        if self._timer is not None:
            self._timer.cancel()
        if self._link is not None:
            self._link.release(self._channel)
        connecting = self._backlog.connecting
        if connecting is not None and connecting is not asyncio.current_task():
            connecting.cancel()
