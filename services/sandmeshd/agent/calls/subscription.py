"""One call's events on their way to one link."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import WrongState, to_detail
from sandmeshd.agent.calls.call import Call
from sandmeshd.agent.calls.event_log import Place
from sandmeshd.agent.calls.wire import frame_of

_BATCH: Final = 256 << 10


class Sender(Protocol):
    """The link that sends for its subscriptions, each in its turn."""

    def enqueue(self, subscription: Subscription, *, now: bool) -> None:
        """Ask `take_frame` of a subscription soon, or `now`."""
        ...

    def write(self, frame: bytes) -> None:
        """Send a frame that waits for no turn."""
        ...

    def let_go(self, subscription: Subscription) -> None:
        """Forget a subscription that another one took the place of."""
        ...


class Subscription:
    """A call's events from a place on, as frames for a channel. What is under way is held to the call's window."""

    def __init__(self, sender: Sender, channel: int, call: Call, after: int) -> None:
        self.call = call
        self.channel = channel
        self.queued = False
        self.done = False
        """Whether the frame with the result was taken, or the caller let go."""
        self._sender = sender
        self._sent = Place(after)
        self._under_way: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._input_told = 0

    def notify(self, *, now: bool) -> None:
        """Ask for a turn of sending."""
        if not self.done:
            self._sender.enqueue(self, now=now)

    def replaced(self) -> None:
        """Tell the caller that another, or the same anew, follows the call from now on."""
        if self.done:
            return
        self.done = True
        self._sender.let_go(self)
        message = "another caller attached to the call, which goes on for that one: attach again to take it back"
        error = to_detail(WrongState(message, {"state": "REPLACED", "call_id": self.call.id}))
        batch = pb.CallEventBatch(call_id=self.call.id, error=error).SerializeToString()
        self._sender.write(agent_pb2.FromAgent(channel=self.channel, final=True, batch=batch).SerializeToString())

    def acknowledge(self, sequence: int) -> None:
        """Take credit for what has arrived."""
        while self._under_way and self._under_way[0][0] <= sequence:
            self._bytes -= self._under_way.popleft()[1]
        if self.call.log.has_after(self._sent):
            self.notify(now=True)

    @property
    def has_more(self) -> bool:
        """Whether a further frame could be taken now."""
        return not self.done and self.call.log.has_after(self._sent) and self._budget() > 0

    def take_frame(self) -> list[bytes] | None:
        """Give the parts of the next frame, None where there is nothing to send or no credit."""
        if self.done:
            return None
        budget = self._budget()
        pieces, place = self.call.log.after(self._sent, budget) if budget > 0 else ([], self._sent)
        acknowledged = self._input_news()
        if not pieces and not acknowledged:
            return None
        return self._frame([self.call.head, acknowledged, *pieces], place)

    def _budget(self) -> int:
        return min(_BATCH, self.call.log.window - self._bytes)

    def _input_news(self) -> bytes:
        source = self.call.input
        if source is None or source.written == self._input_told:
            return b""
        self._input_told = source.written
        return pb.CallEventBatch(input_ack_sequence=source.written).SerializeToString()

    def _frame(self, batch: list[bytes], place: Place) -> list[bytes]:
        last = place.sequence
        if last > self._sent.sequence:
            size = sum(map(len, batch))
            self._under_way.append((last, size))
            self._bytes += size
            self._sent = place
        self.done = self.call.finished and last == self.call.log.last
        if self.done:
            self.call.detach(self)
            self._sender.let_go(self)
        frame = agent_pb2.FromAgent(channel=self.channel, last_sequence=last, final=self.done)
        if self.done:
            frame.end_reason = self.call.end_reason  # type: ignore[assignment]  # typeshed has no open enums
        return frame_of(frame, batch)
