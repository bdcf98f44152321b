"""Notifications between the processes of a mesh, through the store: hints to look again, without content.

A notification is a topic: a sandbox's id, a waiting request's ticket, or a name. One may be lost with a connection, so
subscribers look again after a timeout all the same.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

log = structlog.get_logger()

_RETRY_SECONDS = 0.2


class Notifications:
    """Notify subscribers of topics."""

    def __init__(self, client: Redis, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.listening = asyncio.Event()

    @contextmanager
    def subscribe(self, *topics: str) -> Generator[asyncio.Event]:
        """Yield an event that a notification of any of the topics sets, until the block ends."""
        event = asyncio.Event()
        for topic in topics:
            self._events[topic].add(event)
        try:
            yield event
        finally:
            for topic in topics:
                self._unsubscribe(topic, event)

    def _unsubscribe(self, topic: str, event: asyncio.Event) -> None:
        self._events[topic].discard(event)
        if not self._events[topic]:
            del self._events[topic]

    def notify(self, topic: str) -> None:
        """Notify the topic's subscribers in this process."""
        for event in self._events.get(topic, ()):
            event.set()

    async def listen(self) -> None:
        """Receive notifications until cancelled; reconnect whenever the connection breaks."""
        while True:
            try:
                await self._receive()
            except (RedisError, OSError) as error:
                self.listening.clear()
                log.info("the connection for notifications broke", error=str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    async def _receive(self) -> None:
        # redis-py leaves subscriptions untyped.
        async with cast("Any", self._client).pubsub() as subscription:
            await subscription.subscribe(self._channel)
            async for message in subscription.listen():
                if message["type"] == "message":
                    self.notify(message["data"].decode())
                else:
                    self._notify_all()
                    self.listening.set()

    def _notify_all(self) -> None:
        # What was sent while the connection was down is lost: every subscriber looks again.
        for events in self._events.values():
            for event in events:
                event.set()
