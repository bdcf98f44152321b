"""A connection that carries frames, and the calls' events that are sent on it: fairly, to a peer that may be slow."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Final, cast

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import WrongState, to_detail
from sandmesh.shared import frames
from sandmesh.shared.bulk_frames import LEAST, field, tag
from sandmeshd.agent.calls.call import RunningCall
from sandmeshd.agent.calls.event_log import LogPosition
from sandmeshd.agent.calls.stdin import ProcessInput

_HIGH_WATER: Final = 512 << 10
_SMALL: Final = 16 << 10
"""Smaller frames are joined before they are sent, which costs less than sending their parts."""
_BATCH_SECONDS: Final = 0.0015
"""How long small events wait for more of them; at most twice that."""
_LARGEST_BATCH: Final = 256 << 10
_FEW_PIECES: Final = 8
_BATCH: Final = tag(agent_pb2.FromAgent.DESCRIPTOR, "batch")


class FramedLink(asyncio.Protocol, ABC):
    """A connection to one peer that carries whole frames, with subscriptions sending in turns while the peer reads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = frames.FrameBuffer(frames.MAX_LINK_MESSAGE)
        self._paused = False
        self._turns: deque[CallSubscription] = deque()
        self._batched: dict[CallSubscription, None] = {}
        self._due: dict[CallSubscription, None] = {}
        self._batch_timer: asyncio.TimerHandle | None = None
        self._subscriptions: dict[int, CallSubscription] = {}
        """By channel."""
        self._calls: dict[str, CallSubscription] = {}
        """By the call that each follows."""

    @abstractmethod
    def frame_received(self, frame: bytes) -> None:
        """Handle a whole frame."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget all turns."""
        self._transport = None
        self._turns.clear()
        self._batched.clear()
        self._due.clear()
        if self._batch_timer is not None:
            self._batch_timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Split the data into frames."""
        try:
            for message in self._buffer.feed(data):
                self.frame_received(message)
        except frames.FrameTooLarge as error:
            self.not_a_frame(error.received)

    def not_a_frame(self, data: bytes) -> None:
        """Handle data of which no frame begins; it ends the link."""
        del data
        self.close()

    def pause_writing(self) -> None:
        """Stop sending until the peer has read."""
        self._paused = True

    def resume_writing(self) -> None:
        """Continue with the next turn."""
        self._paused = False
        self._pump()

    def close(self) -> None:
        """Close the link once its write buffer is sent."""
        if self._transport is not None:
            self._transport.close()

    def write(self, *parts: bytes) -> None:
        """Send a frame, which may come in parts."""
        if self._transport is None:
            return
        size = sum(map(len, parts))
        if size < _SMALL:
            self._transport.write(b"".join((frames.prefix(size), *parts)))
        else:
            # uvloop passes them to the kernel without a copy.
            self._transport.writelines([frames.prefix(size), *parts])

    def enqueue(self, subscription: CallSubscription, *, now: bool) -> None:
        """Queue a subscription, `now` or with others a little later."""
        if now:
            self._batched.pop(subscription, None)
            self._due.pop(subscription, None)
            if self._batch_timer is not None and not self._batched and not self._due:
                self._batch_timer.cancel()
                self._batch_timer = None
            if not subscription.queued:
                subscription.queued = True
                self._turns.append(subscription)
            self._pump()
        elif not subscription.queued and subscription not in self._due:
            self._batched[subscription] = None
            if self._batch_timer is None:
                self._batch_timer = self._loop.call_later(_BATCH_SECONDS, self._send_due)

    def forget(self, subscription: CallSubscription) -> None:
        """Forget a subscription that was detached or replaced, or whose last event is sent."""
        self._batched.pop(subscription, None)
        self._due.pop(subscription, None)
        if subscription.queued:
            self._turns.remove(subscription)
            subscription.queued = False
        self._calls.pop(subscription.call.id, None)
        self._subscriptions.pop(subscription.channel, None)

    def _send_due(self) -> None:
        """Send for those that waited a whole period; younger ones may yet have their result to send with it."""
        for subscription in self._due:
            if not subscription.queued:
                subscription.queued = True
                self._turns.append(subscription)
        self._due, self._batched = self._batched, {}
        self._batch_timer = self._loop.call_later(_BATCH_SECONDS, self._send_due) if self._due else None
        self._pump()

    def _pump(self) -> None:
        """Send one frame of each subscription in turn, for as long as the peer reads."""
        while self._turns and not self._paused:
            subscription = self._turns.popleft()
            subscription.queued = False
            parts = subscription.take_frame()
            if parts is not None:
                self.write(*parts)
            if subscription.has_more:
                subscription.queued = True
                self._turns.append(subscription)


class CallSubscription:
    """A call's events from a place on, as frames for a channel. What is in flight is held to the call's window."""

    def __init__(self, link: FramedLink, channel: int, call: RunningCall, after: int) -> None:
        self.call = call
        self.channel = channel
        self.queued = False
        self.has_more = False
        """Whether a further frame could be taken right after the last one."""
        self.done = False
        """Whether the frame with the result was taken, or the subscription was detached or replaced."""
        self._link = link
        self._sent = LogPosition(after)
        self._in_flight: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._input_acknowledged = 0

    def notify(self, *, now: bool) -> None:
        """Request a turn of sending."""
        if not self.done:
            self._link.enqueue(self, now=now)

    def replaced(self) -> None:
        """End, and report to the caller that another one, or the same again, follows the call from now on."""
        if self.done:
            return
        self.done = True
        self._link.forget(self)
        message = "another caller attached to the call and follows it now: attach again to take it back"
        error = to_detail(WrongState(message, {"state": "REPLACED", "call_id": self.call.id}))
        batch = pb.CallEventBatch(call_id=self.call.id, error=error).SerializeToString()
        self._link.write(agent_pb2.FromAgent(channel=self.channel, final=True, batch=batch).SerializeToString())

    def acknowledge(self, sequence: int) -> None:
        """Release the credit of events that have arrived."""
        while self._in_flight and self._in_flight[0][0] <= sequence:
            self._bytes -= self._in_flight.popleft()[1]
        if self.call.log.has_after(self._sent):
            self.notify(now=True)

    def take_frame(self) -> list[bytes] | None:
        """Return the parts of the next frame, None where there is nothing to send or no credit."""
        self.has_more = False
        if self.done:
            return None
        call, log = self.call, self.call.log
        budget = min(_LARGEST_BATCH, log.window - self._bytes)
        pieces, place = log.after(self._sent, budget) if budget > 0 else ([], self._sent)
        acknowledged = b"" if call.input is None else self._input_acknowledgement(call.input)
        if not pieces and not acknowledged:
            return None
        batch = [call.head, acknowledged, *pieces]
        if pieces:
            size = sum(map(len, batch))
            self._in_flight.append((place.sequence, size))
            self._bytes += size
            self._sent = place
        frame = agent_pb2.FromAgent(channel=self.channel, last_sequence=place.sequence)
        if call.finished and place.sequence == log.last:
            frame.final = self.done = True
            frame.end_reason = call.end_reason  # type: ignore[assignment]  # typeshed has no open enums
            if call.place is not None:
                frame.run_time.FromNanoseconds(int(call.place.seconds * 1e9))
            call.detach(self, ended=True)
            self._link.forget(self)
        else:
            self.has_more = log.has_after(place) and log.window > self._bytes
        return encode_frame(frame, batch)

    def _input_acknowledgement(self, source: ProcessInput) -> bytes:
        if source.written == self._input_acknowledged:
            return b""
        self._input_acknowledged = source.written
        return pb.CallEventBatch(input_ack_sequence=source.written).SerializeToString()


def encode_frame(frame: agent_pb2.FromAgent, batch: list[bytes]) -> list[bytes]:
    """Return the parts of a FromAgent with a batch, itself in parts: much data is not copied into the message."""
    if len(batch) < _FEW_PIECES and max(map(len, batch)) < LEAST:
        frame.batch = b"".join(batch)
        return [frame.SerializeToString()]
    return [frame.SerializeToString(), *field(_BATCH, batch)]
