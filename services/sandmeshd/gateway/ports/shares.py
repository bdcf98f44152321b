"""Slots that owners share: one owner gets a quarter at most, and waits are bounded in number and time."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class NoSlot(Exception):
    """An owner has its share in use, or all slots are; `retry_after` is when to try again, in seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Shares:
    """A number of slots, of which each owner may hold a quarter; a free one goes to who waits and has the fewest."""

    def __init__(self, total: int, wait_seconds: float) -> None:
        self._total = total
        self.share = max(1, total // 4)
        """The most that one owner holds; as many of its requests may wait."""
        self._wait_seconds = wait_seconds
        self._held: Counter[str] = Counter()
        self._waiting: defaultdict[str, deque[asyncio.Future[None]]] = defaultdict(deque)

    @asynccontextmanager
    async def slot(self, owner: str) -> AsyncGenerator[None]:
        """Hold a slot for the time of the block.

        Raises:
            NoSlot: None is free for the owner in time, or too many of its requests wait already.
        """
        if self._has_room(owner):
            self._held[owner] += 1
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._release(owner)

    def _has_room(self, owner: str) -> bool:
        return self._held[owner] < self.share and self._held.total() < self._total

    async def _wait(self, owner: str) -> None:
        queue = self._waiting[owner]
        if len(queue) >= self.share:
            raise self._refusal(owner)
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._wait_seconds)
        except BaseException as error:
            if turn.done():
                self._release(owner)
            else:
                queue.remove(turn)
            if isinstance(error, TimeoutError):
                raise self._refusal(owner) from None
            raise
        finally:
            if not queue:
                self._waiting.pop(owner, None)

    def _refusal(self, owner: str) -> NoSlot:
        whose = f"its owner's {self.share}" if self._held[owner] >= self.share else f"all {self._total}"
        return NoSlot(f"{whose} connections are in use: close some, or try again", max(1, int(self._wait_seconds)))

    def _release(self, owner: str) -> None:
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        ready = [one for one, queue in self._waiting.items() if queue and self._has_room(one)]
        if ready:
            following = min(ready, key=lambda one: self._held[one])
            self._held[following] += 1
            self._waiting[following].popleft().set_result(None)
