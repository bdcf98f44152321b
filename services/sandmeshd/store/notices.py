"""Notices that processes of a mesh send each other through the store: hints to look again, never the news itself.

A notice is a word: a sandbox's id, a waiting request's ticket, or a topic. One may be lost with a connection, so who
waits for one looks again after a while all the same.
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


class Notices:
    """Wakes those who wait for a word."""

    def __init__(self, client: Redis, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.listening = asyncio.Event()

    @contextmanager
    def expect(self, *words: str) -> Generator[asyncio.Event]:
        """Give an event that any of the words sets, until the block ends."""
        event = asyncio.Event()
        for word in words:
            self._waiting[word].add(event)
        try:
            yield event
        finally:
            for word in words:
                self._forget(word, event)

    def _forget(self, word: str, event: asyncio.Event) -> None:
        self._waiting[word].discard(event)
        if not self._waiting[word]:
            del self._waiting[word]

    def tell(self, word: str) -> None:
        """Wake who waits for the word in this process."""
        for event in self._waiting.get(word, ()):
            event.set()

    async def listen(self) -> None:
        """Pass on what the store sends until cancelled; connect again whenever that broke."""
        while True:
            try:
                await self._follow()
            except (RedisError, OSError) as error:
                self.listening.clear()
                log.info("notices from the store broke off", error=str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self) -> None:
        # redis-py leaves subscriptions untyped.
        async with cast("Any", self._client).pubsub() as subscription:
            await subscription.subscribe(self._channel)
            async for message in subscription.listen():
                if message["type"] == "message":
                    self.tell(message["data"].decode())
                else:
                    self._wake_all()
                    self.listening.set()

    def _wake_all(self) -> None:
        # What was sent while nobody listened is lost: everybody looks again.
        for events in self._waiting.values():
            for event in events:
                event.set()
