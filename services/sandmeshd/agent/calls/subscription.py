"""A link's subscription to the events of one call."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import WrongState, to_detail
from sandmesh.shared.bulk_frames import LEAST, field, tag
from sandmeshd.agent.calls.call import Call
from sandmeshd.agent.calls.event_log import Place
from sandmeshd.agent.calls.stdin import Input

_LARGEST_BATCH: Final = 256 << 10
_FEW_PIECES: Final = 8
_BATCH: Final = tag(agent_pb2.FromAgent.DESCRIPTOR, "batch")


class Sender(Protocol):
    """The link that sends for its subscriptions, each in its turn."""

    def enqueue(self, subscription: Subscription, *, now: bool) -> None:
        """Call `take_frame` of a subscription soon, or `now`."""
        ...

    def write(self, *parts: bytes) -> None:
        """Send a frame, which may come in parts, ahead of the subscriptions' frames."""
        ...

    def forget(self, subscription: Subscription) -> None:
        """Forget a subscription that has ended."""
        ...


class Subscription:
    """A call's events from a place on, as frames for a channel. What is in flight is held to the call's window."""

    def __init__(self, sender: Sender, channel: int, call: Call, after: int) -> None:
        self.call = call
        self.channel = channel
        self.queued = False
        self.done = False
        """Whether the frame with the result was taken, or the subscription was detached or replaced."""
        self._sender = sender
        self._sent = Place(after)
        self._in_flight: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._input_acknowledged = 0

    def notify(self, *, now: bool) -> None:
        """Request a turn of sending."""
        if not self.done:
            self._sender.enqueue(self, now=now)

    def replaced(self) -> None:
        """End, and report to the caller that another one, or the same anew, follows the call from now on."""
        if self.done:
            return
        self.done = True
        self._sender.forget(self)
        message = "another caller attached to the call and follows it now: attach again to take it back"
        error = to_detail(WrongState(message, {"state": "REPLACED", "call_id": self.call.id}))
        batch = pb.CallEventBatch(call_id=self.call.id, error=error).SerializeToString()
        self._sender.write(agent_pb2.FromAgent(channel=self.channel, final=True, batch=batch).SerializeToString())

    def acknowledge(self, sequence: int) -> None:
        """Release the credit of events that have arrived."""
        while self._in_flight and self._in_flight[0][0] <= sequence:
            self._bytes -= self._in_flight.popleft()[1]
        if self.call.log.has_after(self._sent):
            self.notify(now=True)

    @property
    def has_more(self) -> bool:
        """Whether a further frame could be taken now."""
        return not self.done and self.call.log.has_after(self._sent) and self.call.log.window > self._bytes

    def take_frame(self) -> list[bytes] | None:
        """Return the parts of the next frame, None where there is nothing to send or no credit."""
        if self.done:
            return None
        log = self.call.log
        budget = min(_LARGEST_BATCH, log.window - self._bytes)
        pieces, place = log.after(self._sent, budget) if budget > 0 else ([], self._sent)
        acknowledged = b"" if self.call.input is None else self._input_acknowledgement(self.call.input)
        if not pieces and not acknowledged:
            return None
        return self._frame([self.call.head, acknowledged, *pieces], place)

    def _input_acknowledgement(self, source: Input) -> bytes:
        if source.written == self._input_acknowledged:
            return b""
        self._input_acknowledged = source.written
        return pb.CallEventBatch(input_ack_sequence=source.written).SerializeToString()

    def _frame(self, batch: list[bytes], place: Place) -> list[bytes]:
        last = place.sequence
        if last > self._sent.sequence:
            size = sum(map(len, batch))
            self._in_flight.append((last, size))
            self._bytes += size
            self._sent = place
        self.done = self.call.finished and last == self.call.log.last
        if self.done:
            self.call.detach(self)
            self._sender.forget(self)
        frame = agent_pb2.FromAgent(channel=self.channel, last_sequence=last, final=self.done)
        if self.done:
            frame.end_reason = self.call.end_reason  # type: ignore[assignment]  # typeshed has no open enums
        return encode_frame(frame, batch)


def encode_frame(frame: agent_pb2.FromAgent, batch: list[bytes]) -> list[bytes]:
    """Return the parts of a FromAgent with a batch, itself in parts: much data is not copied into the message."""
    if len(batch) < _FEW_PIECES and max(map(len, batch)) < LEAST:
        frame.batch = b"".join(batch)
        return [frame.SerializeToString()]
    return [frame.SerializeToString(), *field(_BATCH, batch)]
