"""A gateway's link to the agent: its hello, then the frames of its calls."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from google.protobuf.message import DecodeError

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.api.call.v1 import call_pb2
from sandmesh.errors import InvalidArgument, ProtocolMismatch, SandmeshError, TooLarge, to_detail
from sandmesh.shared import frames
from sandmesh.shared.frames import LINK_PROTOCOL
from sandmeshd.agent.calls.call import RunningCall
from sandmeshd.agent.calls.dispatcher import Dispatcher
from sandmeshd.agent.link.framing import CallSubscription, FramedLink
from sandmeshd.agent.network.egress import Egress

LARGEST_ARGUMENTS: Final = 64 << 20
_HELLO_SECONDS: Final = 10.0
_HTTP: Final = b"GET "


class _PartialStart:
    """A start whose arguments have not arrived in full."""

    def __init__(self, start: call_pb2.CallStart) -> None:
        self.start = start
        self.arguments = bytearray(start.arguments)

    @property
    def complete(self) -> bool:
        return len(self.arguments) == self.start.arguments_size


class AgentEndpoint(FramedLink):
    """The connection of a gateway, which with the agent's token may start and follow calls, each on its own channel."""

    def __init__(self, dispatcher: Dispatcher, egress: Egress | None) -> None:
        super().__init__()
        self._dispatcher = dispatcher
        self._egress = egress
        self._authenticated = False
        self._upgraded = False
        self._hello_timer = self._loop.call_later(_HELLO_SECONDS, self.close)
        self._partial_starts: dict[int, _PartialStart] = {}
        self._frames: dict[str, Callable[[int, pb.Fenced, Any], None]] = {
            "start": self._start,
            "argument_chunk": self._argument_chunk,
            "attach": self._attach,
            "acknowledge": self._acknowledge,
            "input": self._control,
            "signal": self._control,
            "cancel": self._control,
            "detach": self._detach,
            "resize": self._control,
        }

    def connection_lost(self, exc: Exception | None) -> None:
        """Detach from every call; the calls continue."""
        super().connection_lost(exc)
        self._hello_timer.cancel()
        if self._egress is not None:
            self._egress.detach(self)
        for subscription in self._calls.values():
            subscription.call.detach(subscription)
        self._calls.clear()
        self._subscriptions.clear()
        self._partial_starts.clear()

    def not_a_frame(self, data: bytes) -> None:
        """Read a request of HTTP where the connection begins with one; end the link otherwise."""
        transport = self._transport
        if self._authenticated or self._upgraded or transport is None or not data.startswith(_HTTP):
            self.close()
            return
        self._upgraded = True
        self._buffer = frames.FrameBuffer(frames.MAX_LINK_MESSAGE)
        # Few links come this way.
        request = import_module("sandmeshd.agent.link.upgrade").HttpRequest(transport, self)
        transport.set_protocol(request)
        request.data_received(data)

    def frame_received(self, frame: bytes) -> None:
        """Handle a frame; one that cannot be decoded ends the link."""
        try:
            message = pb.ToAgent.FromString(frame)
        except DecodeError:
            self.close()
            return
        body = message.WhichOneof("body")
        if body != "call" or not self._authenticated:
            self._request(message, body)
            return
        channel, fenced = message.channel, message.call
        kind = fenced.frame.WhichOneof("frame")
        if kind is None:
            self._send_error(channel, InvalidArgument("the call's frame is empty"))
            return
        try:
            self._frames[kind](channel, fenced, getattr(fenced.frame, kind))
        except SandmeshError as error:
            if kind in {"start", "argument_chunk", "attach"}:
                self._reject(channel, fenced.frame.call_id, error)
            elif not self._is_own(channel, fenced.frame.call_id):
                self._send_error(channel, error)

    def _hello(self, message: pb.ToAgent) -> None:
        self._hello_timer.cancel()
        identity, hello = self._dispatcher.identity, message.hello
        if not hmac.compare_digest(hello.agent_token.encode(), identity.agent_token.encode()):
            self.close()
            return
        try:
            _check_protocol(hello.protocol)
            if hello.sandbox_id:
                self._dispatcher.check(hello.sandbox_id)
        except SandmeshError as error:
            self._send_error(message.channel, error)
            self.close()
            return
        self._authenticated = True
        hello_back = pb.AgentHello(
            protocol=LINK_PROTOCOL, sandbox_id=identity.sandbox_id, version=identity.version, kernel=identity.kernel
        )
        self.write(pb.FromAgent(channel=message.channel, hello=hello_back).SerializeToString())

    def _request(self, message: pb.ToAgent, body: str | None) -> None:
        if not self._authenticated:
            self._hello(message)
            return
        try:
            if body == "install_token":
                self._dispatcher.install_token(message.install_token.fencing_token, message.install_token.record)
            elif body == "read_record":
                self.write(pb.FromAgent(channel=message.channel, record=self._dispatcher.record).SerializeToString())
                return
            elif body == "list_tools":
                self._dispatcher.check_token(message.list_tools.fencing_token)
                self._dispatcher.list_tools(
                    message.list_tools.group,
                    lambda tools: self.write(pb.FromAgent(channel=message.channel, tools=tools).SerializeToString()),
                )
                return
            elif body in ("egress", "open_egress") and self._egress is not None:
                self._pass_egress(self._egress, message, body)
                return
            elif body != "ping":
                raise InvalidArgument(f"the agent does not support {body} here")
            self._done(message.channel)
        except SandmeshError as error:
            self._send_error(message.channel, error)

    def _pass_egress(self, egress: Egress, message: pb.ToAgent, body: str | None) -> None:
        if body == "egress":
            egress.take(self, message.egress)
        else:
            # The response must precede the first data.
            self._done(message.channel)
            egress.attach(self)

    # Frames that start and follow calls; the response is the call's events.

    def _start(self, channel: int, fenced: pb.Fenced, start: call_pb2.CallStart) -> None:
        self._dispatcher.check(start.sandbox_id, start.fencing_token or fenced.fencing_token)
        if max(start.arguments_size, len(start.arguments)) > LARGEST_ARGUMENTS:
            raise TooLarge("a call's arguments may have at most 64 MiB: write larger data to a file in the sandbox")
        if start.arguments_size > len(start.arguments):
            self._partial_starts[channel] = _PartialStart(start)
        else:
            self._follow(channel, self._dispatcher.find_or_start(start, start.arguments), 0)

    def _argument_chunk(self, channel: int, _: pb.Fenced, chunk: call_pb2.ArgumentChunk) -> None:
        partial_start = self._partial_starts.get(channel)
        if partial_start is None:
            return
        partial_start.arguments += chunk.data
        if len(partial_start.arguments) > partial_start.start.arguments_size:
            del self._partial_starts[channel]
            raise InvalidArgument("more bytes of arguments arrived than arguments_size declares")
        if partial_start.complete:
            del self._partial_starts[channel]
            call = self._dispatcher.find_or_start(partial_start.start, bytes(partial_start.arguments))
            self._follow(channel, call, 0)

    def _attach(self, channel: int, fenced: pb.Fenced, attach: call_pb2.Attach) -> None:
        self._dispatcher.check(attach.sandbox_id, attach.fencing_token or fenced.fencing_token)
        call = self._dispatcher.calls.get(attach.call_id)
        if attach.after_sequence > call.log.last:
            raise InvalidArgument(
                f"call {call.id} has no event {attach.after_sequence} yet, its last is {call.log.last}"
            )
        if not attach.keep:
            call.acknowledge(attach.after_sequence)
        self._follow(channel, call, attach.after_sequence)
        if attach.keep:
            call.take(attach.after_sequence)
        if not call.finished:
            # Sent immediately, even without events: it confirms the attach.
            taken = call.input.taken if call.input is not None else 0
            batch = call.head + call_pb2.CallEventBatch(input_taken_sequence=taken).SerializeToString()
            frame = pb.FromAgent(channel=channel, last_sequence=attach.after_sequence, batch=batch)
            self.write(frame.SerializeToString())

    def _follow(self, channel: int, call: RunningCall, after: int) -> None:
        subscription = CallSubscription(self, channel, call, after)
        call.attach(subscription)
        self._calls[call.id] = self._subscriptions[channel] = subscription
        if call.finished and after == call.log.last:
            call.detach(subscription)
            self.forget(subscription)
            frame = pb.FromAgent(channel=channel, last_sequence=after, final=True, batch=call.head)
            self.write(frame.SerializeToString())
        elif call.log.last > after or call.input is not None:
            # The acknowledgement of its input may have to be sent too.
            subscription.notify(now=False)

    # Frames that act on calls; the response is `done`, except on the call's own channel.

    def _acknowledge(self, channel: int, fenced: pb.Fenced, acknowledge: call_pb2.Acknowledge) -> None:
        # A late one, after another channel took over, covers events that the other may not have received yet.
        if not self._is_own(channel, fenced.frame.call_id):
            return
        subscription = self._subscriptions[channel]
        if acknowledge.keep:
            subscription.call.take(acknowledge.sequence)
        else:
            subscription.call.acknowledge(acknowledge.sequence)
        subscription.acknowledge(acknowledge.sequence)

    def _control(self, channel: int, fenced: pb.Fenced, body: Any) -> None:
        call, taken = self._find(fenced), 0
        match body:
            case call_pb2.Input():
                taken = call.take_input(body)
            case call_pb2.Signal():
                call.signal(body.number)
            case call_pb2.Resize():
                call.resize(body.rows, body.columns)
            case _:
                call.stop(call_pb2.END_REASON_CANCELLED)
        if not self._is_own(channel, fenced.frame.call_id):
            self._done(channel, taken)

    def _detach(self, channel: int, fenced: pb.Fenced, _: call_pb2.Detach) -> None:
        self._partial_starts.pop(channel, None)
        # A replaced subscriber must not detach the one that replaced it.
        if self._is_own(channel, fenced.frame.call_id):
            subscription = self._subscriptions[channel]
            subscription.done = True
            subscription.call.detach(subscription)
            self.forget(subscription)
        self._done(channel)

    def _find(self, fenced: pb.Fenced) -> RunningCall:
        """Return the call of a frame whose sender may act on it: the call's link, or the holder of the lease."""
        call_id = fenced.frame.call_id
        if fenced.fencing_token or call_id not in self._calls:
            self._dispatcher.check_token(fenced.fencing_token)
        return self._dispatcher.calls.get(call_id)

    def _is_own(self, channel: int, call_id: str) -> bool:
        subscription = self._subscriptions.get(channel)
        return subscription is not None and subscription.call.id == call_id

    def _done(self, channel: int, taken: int = 0) -> None:
        done = pb.Done(input_ack_sequence=taken)
        self.write(pb.FromAgent(channel=channel, done=done).SerializeToString())

    def _send_error(self, channel: int, error: SandmeshError) -> None:
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


def serve_links(dispatcher: Dispatcher, egress: Egress | None = None) -> Callable[[], asyncio.Protocol]:
    """Return the protocol factory of links, which share one dispatcher."""
    return lambda: AgentEndpoint(dispatcher, egress)
