"""What tenants share: one owner has a quarter of it at most, and waits for it are bounded in number and time."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from sandmesh.errors import MeshUnavailable
from sandmeshd.auth.principal import ANONYMOUS

PARTS: Final = 4
"""Into how many parts a bound is split: one owner has one of them at most."""

ADMINISTRATORS: Final = "administrators"
"""The owner of what belongs to no user."""

MOST_WAITING: Final = 1024
"""The most requests of one owner that wait, and no more than its part."""

WAIT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 5.0


def owner_of_user(user_id: str, caller: str = "") -> str:
    """Return the owner of what a user has; sessions that name no user are their caller's, else the administrators'."""
    name = caller if user_id.startswith(ANONYMOUS) else user_id or caller
    return f"user {name}" if name else ADMINISTRATORS


def tenant_of(record_labels: Mapping[str, str]) -> str:
    """Return whose a sandbox with these labels is; empty in a pool."""
    if not record_labels.get("session"):
        return ""
    return owner_of_user(record_labels.get("user", ""), record_labels.get("caller", ""))


@dataclass(frozen=True)
class _WaitingClaim:
    amount: int
    turn: asyncio.Future[None]


class Shares:
    """A number of things, or of bytes, of which each owner has a quarter at most.

    What is released goes to the waiting owner that has the fewest. The empty owner is everybody's where no tokens are
    asked for, and is bounded by the whole.
    """

    def __init__(self, what: str, most: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self.most = most
        self._what = what
        self._wait_seconds = wait_seconds
        self._used: Counter[str] = Counter()
        self._waiting: defaultdict[str, deque[_WaitingClaim]] = defaultdict(deque)

    @property
    def part(self) -> int:
        """What one owner may have."""
        return max(1, self.most // PARTS)

    def used(self, owner: str) -> int:
        """Return what an owner has."""
        return self._used[owner]

    @property
    def total(self) -> int:
        """What all owners have."""
        return self._used.total()

    def take(self, owner: str, amount: int = 1) -> None:
        """Take an amount.

        Raises:
            MeshUnavailable: The owner has as much as one may have, or all of it is in use.
        """
        if not self._fits(owner, amount):
            raise self._full(owner)
        self._used[owner] += amount

    def give(self, owner: str, amount: int = 1) -> None:
        """Release an amount, and pass it on to those that wait."""
        self._used[owner] -= amount
        if self._used[owner] <= 0:
            del self._used[owner]
        while ready := [one for one, queue in self._waiting.items() if queue and self._fits(one, queue[0].amount)]:
            following = min(ready, key=lambda one: self._used[one])
            waiting = self._waiting[following].popleft()
            self._used[following] += waiting.amount
            waiting.turn.set_result(None)

    @asynccontextmanager
    async def held(self, owner: str, amount: int = 1) -> AsyncGenerator[None]:
        """Hold an amount within the block, waiting for it where it is in use.

        Raises:
            MeshUnavailable: As `acquire`.
        """
        await self.acquire(owner, amount)
        try:
            yield
        finally:
            self.give(owner, amount)

    async def acquire(self, owner: str, amount: int = 1) -> None:
        """Take an amount, waiting for it where it is in use.

        Raises:
            MeshUnavailable: It was still in use after the wait, too many wait, or it is more than one owner may have.
        """
        if self._fits(owner, amount):
            self._used[owner] += amount
            return
        queue = self._waiting[owner]
        if amount > self._most_of(owner) or len(queue) >= min(self._most_of(owner), MOST_WAITING):
            raise self._full(owner)
        waiting = _WaitingClaim(amount, asyncio.get_running_loop().create_future())
        queue.append(waiting)
        try:
            await asyncio.wait_for(asyncio.shield(waiting.turn), self._wait_seconds)
        except BaseException as error:
            if waiting.turn.done():
                self.give(owner, amount)
            else:
                queue.remove(waiting)
            if isinstance(error, TimeoutError):
                raise self._full(owner) from None
            raise
        finally:
            if not queue:
                self._waiting.pop(owner, None)

    def _most_of(self, owner: str) -> int:
        return self.part if owner else self.most

    def _fits(self, owner: str, amount: int) -> bool:
        return self._used[owner] + amount <= self._most_of(owner) and self._used.total() + amount <= self.most

    def _full(self, owner: str) -> MeshUnavailable:
        whose = f"{owner} has {self._used[owner]} of at most {self.part}, " if owner else ""
        message = f"{self._what}: {whose}{self._used.total()} of {self.most} are in use; end some, or try again later"
        return MeshUnavailable(message, {"bound": self._what}, retry_after=RETRY_SECONDS)
