"""Length-prefixed frames over a byte stream, and fair writing to one that is slow."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

from sandmesh.shared import frames
from sandmeshd.agent.calls.subscription import Subscription

_HIGH_WATER: Final = 512 << 10
_SMALL: Final = 16 << 10
"""A frame that is joined before it is sent: that costs less than sending its parts."""
_GATHER: Final = 0.0015
"""How long small events wait for more of them, in seconds; at most twice that."""


class FramedLink(asyncio.Protocol):
    """One peer: whole frames in, frames out, with subscriptions taking turns while the peer reads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = frames.FrameBuffer(frames.MAX_LINK_MESSAGE)
        self._paused = False
        self._turns: deque[Subscription] = deque()
        self._gathering: dict[Subscription, None] = {}
        self._older: dict[Subscription, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, frame: bytes) -> None:
        """Take a whole frame."""
        raise TypeError(f"{type(self).__name__} takes no frames, here one of {len(frame)} bytes")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget whose turn it is."""
        self._transport = None
        self._turns.clear()
        self._gathering.clear()
        self._older.clear()
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Cut what arrived into frames."""
        try:
            for message in self._buffer.feed(data):
                self.take(message)
        except frames.FrameTooLarge:
            self.close()

    def pause_writing(self) -> None:
        """Send nothing more until the peer has read."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on where the turns were."""
        self._paused = False
        self._pump()

    def close(self) -> None:
        """Close the link once what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def write(self, frame: bytes) -> None:
        """Send a frame."""
        if self._transport is not None:
            self._transport.write(frames.pack(frame))

    def _write_parts(self, parts: list[bytes]) -> None:
        if len(parts) == 1 and len(parts[0]) < _SMALL:
            self.write(parts[0])
            return
        size = sum(map(len, parts))
        if size < _SMALL:
            self.write(b"".join(parts))
        elif self._transport is not None:
            # uvloop hands them to the kernel as they are.
            self._transport.writelines([frames.prefix(size), *parts])

    def enqueue(self, subscription: Subscription, *, now: bool) -> None:
        """Give a subscription its turn, `now` or with others a little later."""
        if now:
            self._gathering.pop(subscription, None)
            self._older.pop(subscription, None)
            if self._timer is not None and not self._gathering and not self._older:
                self._timer.cancel()
                self._timer = None
            self._queue(subscription)
            self._pump()
        elif not subscription.queued and subscription not in self._older:
            self._gathering[subscription] = None
            if self._timer is None:
                self._timer = self._loop.call_later(_GATHER, self._timed)

    def let_go(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self._gathering.pop(subscription, None)
        self._older.pop(subscription, None)
        if subscription.queued:
            self._turns.remove(subscription)
            subscription.queued = False

    def _queue(self, subscription: Subscription) -> None:
        if not subscription.queued:
            subscription.queued = True
            self._turns.append(subscription)

    def _timed(self) -> None:
        """Send for those that waited a whole period; younger ones may yet have their result to send with it."""
        for subscription in self._older:
            self._queue(subscription)
        self._older, self._gathering = self._gathering, {}
        self._timer = self._loop.call_later(_GATHER, self._timed) if self._older else None
        self._pump()

    def _pump(self) -> None:
        """Send one frame of each subscription in turn, for as long as the peer reads."""
        while self._turns and not self._paused:
            subscription = self._turns.popleft()
            subscription.queued = False
            parts = subscription.take_frame()
            if parts is not None:
                self._write_parts(parts)
            if subscription.has_more:
                self._queue(subscription)
