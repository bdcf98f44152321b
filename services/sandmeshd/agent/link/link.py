"""One gateway's link: its hello, then its callers' frames."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.api.call.v1 import call_pb2
from sandmesh.errors import InvalidArgument, ProtocolMismatch, SandmeshError, TooLarge, to_detail
from sandmesh.shared.frames import LINK_PROTOCOL
from sandmeshd.agent.calls.call import Call
from sandmeshd.agent.calls.dispatcher import Engine
from sandmeshd.agent.calls.subscription import Subscription
from sandmeshd.agent.link.framing import FramedLink
from sandmeshd.agent.network.egress import Egress

LARGEST_ARGUMENTS: Final = 64 << 20
_HELLO_SECONDS: Final = 10.0


class _Unfinished:
    """A start whose arguments are still on their way."""

    def __init__(self, start: call_pb2.CallStart) -> None:
        self.start = start
        self.arguments = bytearray(start.arguments)

    @property
    def whole(self) -> bool:
        return len(self.arguments) == self.start.arguments_size


class Link(FramedLink):
    """A gateway that shows the agent's token may start calls and follow them, each on a channel of its own."""

    def __init__(self, engine: Engine, egress: Egress | None) -> None:
        super().__init__()
        self._engine = engine
        self._egress = egress
        self._welcome = False
        self._deadline = self._loop.call_later(_HELLO_SECONDS, self.close)
        self._subscriptions: dict[int, Subscription] = {}
        self._calls: dict[str, Subscription] = {}
        self._unfinished: dict[int, _Unfinished] = {}
        self._frames: dict[str, Callable[[int, pb.Fenced, Any], None]] = {
            "start": self._start,
            "argument_chunk": self._argument_chunk,
            "attach": self._attach,
            "acknowledge": self._acknowledge,
            "input": self._input,
            "signal": self._signal,
            "cancel": self._cancel,
            "detach": self._detach,
            "resize": self._resize,
        }

    def connection_lost(self, exc: Exception | None) -> None:
        """Detach from every call; they go on."""
        super().connection_lost(exc)
        self._deadline.cancel()
        if self._egress is not None:
            self._egress.detach(self)
        for subscription in self._calls.values():
            subscription.call.detach(subscription)
        self._calls.clear()
        self._subscriptions.clear()
        self._unfinished.clear()

    def take(self, frame: bytes) -> None:
        """Act on a frame; what is no message of ours ends the link."""
        try:
            message = pb.ToAgent.FromString(frame)
        except DecodeError:
            self.close()
            return
        body = message.WhichOneof("body")
        if not self._welcome:
            self._hello(message)
        elif body == "call":
            self._call(message.channel, message.call)
        else:
            self._ask(message, body)

    def _hello(self, message: pb.ToAgent) -> None:
        self._deadline.cancel()
        identity, hello = self._engine.identity, message.hello
        if not hmac.compare_digest(hello.agent_token.encode(), identity.agent_token.encode()):
            self.close()
            return
        try:
            _check_protocol(hello.protocol)
            self._engine.check_sandbox(hello.sandbox_id)
        except SandmeshError as error:
            self._refuse(message.channel, error)
            self.close()
            return
        self._welcome = True
        answer = pb.AgentHello(protocol=LINK_PROTOCOL, sandbox_id=identity.sandbox_id, version=identity.version)
        self.write(pb.FromAgent(channel=message.channel, hello=answer).SerializeToString())

    def _ask(self, message: pb.ToAgent, body: str | None) -> None:
        try:
            if body == "install_token":
                self._engine.install_token(message.install_token.fencing_token)
            elif body == "list_tools":
                self._engine.check_token(message.list_tools.fencing_token)
                self._engine.tools(message.list_tools.group, partial(self._tell_tools, message.channel))
                return
            elif body == "egress" and self._egress is not None:
                self._egress.take(self, message.egress)
                return
            elif body == "open_egress" and self._egress is not None:
                # Its answer comes before the first of what it carries.
                self._done(message.channel)
                self._egress.attach(self)
                return
            elif body != "ping":
                raise InvalidArgument(f"the agent knows no {body} here")
            self._done(message.channel)
        except SandmeshError as error:
            self._refuse(message.channel, error)

    def _call(self, channel: int, fenced: pb.Fenced) -> None:
        kind = fenced.frame.WhichOneof("frame")
        if kind is None:
            self._refuse(channel, InvalidArgument("the call's frame is empty"))
            return
        try:
            self._frames[kind](channel, fenced, getattr(fenced.frame, kind))
        except SandmeshError as error:
            if kind in {"start", "argument_chunk", "attach"}:
                self._reject(channel, fenced.frame.call_id, error)
            elif not self._is_own(channel, fenced.frame.call_id):
                self._refuse(channel, error)

    # What starts and follows calls; the answer is the call's events.

    def _start(self, channel: int, fenced: pb.Fenced, start: call_pb2.CallStart) -> None:
        self._engine.check_sandbox(start.sandbox_id)
        self._engine.check_token(start.fencing_token or fenced.fencing_token)
        if max(start.arguments_size, len(start.arguments)) > LARGEST_ARGUMENTS:
            raise TooLarge("a call's arguments are at most 64 MiB: put larger data into a file of the sandbox first")
        if start.arguments_size > len(start.arguments):
            self._unfinished[channel] = _Unfinished(start)
        else:
            self._follow(channel, self._engine.find_or_start(start, start.arguments), 0)

    def _argument_chunk(self, channel: int, _: pb.Fenced, chunk: call_pb2.ArgumentChunk) -> None:
        unfinished = self._unfinished.get(channel)
        if unfinished is None:
            return
        unfinished.arguments += chunk.data
        if len(unfinished.arguments) > unfinished.start.arguments_size:
            del self._unfinished[channel]
            raise InvalidArgument("more bytes of arguments came than arguments_size says")
        if unfinished.whole:
            del self._unfinished[channel]
            call = self._engine.find_or_start(unfinished.start, bytes(unfinished.arguments))
            self._follow(channel, call, 0)

    def _attach(self, channel: int, fenced: pb.Fenced, attach: call_pb2.Attach) -> None:
        self._engine.check_sandbox(attach.sandbox_id)
        self._engine.check_token(attach.fencing_token or fenced.fencing_token)
        call = self._engine.calls.get(attach.call_id)
        if attach.after_sequence > call.log.last:
            raise InvalidArgument(
                f"call {call.id} has no event {attach.after_sequence} yet, its last is {call.log.last}"
            )
        call.acknowledge(attach.after_sequence)
        self._follow(channel, call, attach.after_sequence)
        if not call.finished:
            # At once, also where nothing is to be told: who attached knows that it has the call.
            taken = call.input.taken if call.input is not None else 0
            batch = call.head + call_pb2.CallEventBatch(input_taken_sequence=taken).SerializeToString()
            frame = pb.FromAgent(channel=channel, last_sequence=attach.after_sequence, batch=batch)
            self.write(frame.SerializeToString())

    def _follow(self, channel: int, call: Call, after: int) -> None:
        subscription = Subscription(self, channel, call, after)
        before = self._calls.get(call.id)
        if before is not None:
            before.replaced()
        call.attach(subscription)
        self._calls[call.id] = self._subscriptions[channel] = subscription
        if call.finished and after == call.log.last:
            call.detach(subscription)
            self.let_go(subscription)
            frame = pb.FromAgent(channel=channel, last_sequence=after, final=True, batch=call.head)
            self.write(frame.SerializeToString())
        elif call.log.last > after or call.input is not None:
            # How much of its input was taken may be news too.
            subscription.notify(now=False)

    # What acts on calls; the answer is `done`, except on the call's own channel.

    def _acknowledge(self, channel: int, fenced: pb.Fenced, acknowledge: call_pb2.Acknowledge) -> None:
        # One that comes after the call went to another channel is about events that the other may not have yet.
        if not self._is_own(channel, fenced.frame.call_id):
            return
        subscription = self._subscriptions[channel]
        subscription.call.acknowledge(acknowledge.sequence)
        subscription.acknowledge(acknowledge.sequence)

    def _input(self, channel: int, fenced: pb.Fenced, item: call_pb2.Input) -> None:
        self._answer(channel, fenced, self._find(fenced).take_input(item))

    def _signal(self, channel: int, fenced: pb.Fenced, signal: call_pb2.Signal) -> None:
        self._find(fenced).signal(signal.number)
        self._answer(channel, fenced)

    def _cancel(self, channel: int, fenced: pb.Fenced, _: call_pb2.Cancel) -> None:
        self._find(fenced).stop(call_pb2.END_REASON_CANCELLED)
        self._answer(channel, fenced)

    def _resize(self, channel: int, fenced: pb.Fenced, resize: call_pb2.Resize) -> None:
        self._find(fenced).resize(resize.rows, resize.columns)
        self._answer(channel, fenced)

    def _detach(self, channel: int, fenced: pb.Fenced, _: call_pb2.Detach) -> None:
        self._unfinished.pop(channel, None)
        # A caller that was displaced lets go of nothing that is another's by now.
        if self._is_own(channel, fenced.frame.call_id):
            subscription = self._subscriptions[channel]
            subscription.done = True
            subscription.call.detach(subscription)
            self.let_go(subscription)
        self._done(channel)

    def _find(self, fenced: pb.Fenced) -> Call:
        """Give the call of a frame whose sender may act on it: its link, or the holder of the lease."""
        call_id = fenced.frame.call_id
        if fenced.fencing_token or call_id not in self._calls:
            self._engine.check_token(fenced.fencing_token)
        return self._engine.calls.get(call_id)

    def let_go(self, subscription: Subscription) -> None:
        """Forget a subscription whose call is another's, or whose last event was sent."""
        super().let_go(subscription)
        self._calls.pop(subscription.call.id, None)
        self._subscriptions.pop(subscription.channel, None)

    def _is_own(self, channel: int, call_id: str) -> bool:
        subscription = self._subscriptions.get(channel)
        return subscription is not None and subscription.call.id == call_id

    def _answer(self, channel: int, fenced: pb.Fenced, taken: int = 0) -> None:
        if not self._is_own(channel, fenced.frame.call_id):
            self._done(channel, taken)

    def _tell_tools(self, channel: int, tools: bytes) -> None:
        self.write(pb.FromAgent(channel=channel, tools=tools).SerializeToString())

    def _done(self, channel: int, taken: int = 0) -> None:
        done = pb.Done(input_ack_sequence=taken)
        self.write(pb.FromAgent(channel=channel, done=done).SerializeToString())

    def _refuse(self, channel: int, error: SandmeshError) -> None:
        self.write(pb.FromAgent(channel=channel, error=to_detail(error)).SerializeToString())

    def _reject(self, channel: int, call_id: str, error: SandmeshError) -> None:
        batch = call_pb2.CallEventBatch(call_id=call_id, error=to_detail(error)).SerializeToString()
        self.write(pb.FromAgent(channel=channel, final=True, batch=batch).SerializeToString())


def _check_protocol(protocol: int) -> None:
    if protocol != LINK_PROTOCOL:
        raise ProtocolMismatch(
            f"the agent speaks protocol {LINK_PROTOCOL}, not {protocol}",
            {"agent": str(LINK_PROTOCOL), "gateway": str(protocol)},
        )


def serve_links(engine: Engine, egress: Egress | None = None) -> Callable[[], asyncio.Protocol]:
    """Give what makes a link of each connection, with one of the engine's behind all."""
    return lambda: Link(engine, egress)
