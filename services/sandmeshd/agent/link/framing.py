"""Length-prefixed frames over a byte stream, and fair writing to one that is slow."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Final, cast

from sandmesh.shared import frames
from sandmeshd.agent.calls.subscription import Subscription

_HIGH_WATER: Final = 512 << 10
_SMALL: Final = 16 << 10
"""Smaller frames are joined before they are sent, which costs less than sending their parts."""
_BATCH_SECONDS: Final = 0.0015
"""How long small events wait for more of them; at most twice that."""


class FramedLink(asyncio.Protocol, ABC):
    """A connection to one peer that carries whole frames, with subscriptions sending in turns while the peer reads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = frames.FrameBuffer(frames.MAX_LINK_MESSAGE)
        self._paused = False
        self._turns: deque[Subscription] = deque()
        self._batched: dict[Subscription, None] = {}
        self._due: dict[Subscription, None] = {}
        self._batch_timer: asyncio.TimerHandle | None = None

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
        except frames.FrameTooLarge:
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

    def enqueue(self, subscription: Subscription, *, now: bool) -> None:
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

    def forget(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self._batched.pop(subscription, None)
        self._due.pop(subscription, None)
        if subscription.queued:
            self._turns.remove(subscription)
            subscription.queued = False

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
