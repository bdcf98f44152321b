"""What all clients of a door share: one owner has a quarter of it at most, and waits for it are bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from sandmesh.errors import MeshUnavailable
from sandmesh.mesh import PrincipalInfo

PARTS: Final = 4
"""Into how many parts a bound is split: one owner has one of them at most."""

WAIT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 5.0


def owner_of(principal: PrincipalInfo) -> str:
    """Return whom a principal's use counts for: its user, project or sandbox, else the administrators."""
    kinds = {"user": principal.user_id, "project": principal.project, "sandbox": principal.sandbox_id}
    return next((f"{kind} {name}" for kind, name in kinds.items() if name), "administrators")


class Shares:
    """A number of things, or of bytes, of which each owner has a quarter at most.

    The empty owner is everybody's where no tokens are asked for, and is bounded by the whole.
    """

    def __init__(self, what: str, most: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self.most = most
        self._what = what
        self._wait_seconds = wait_seconds
        self._used: Counter[str] = Counter()
        self._total = 0
        self._freed = asyncio.Event()

    @property
    def part(self) -> int:
        """What one owner may have."""
        return max(1, self.most // PARTS)

    def used(self, owner: str) -> int:
        """Return what an owner has."""
        return self._used[owner]

    def take(self, owner: str, amount: int = 1) -> None:
        """Take an amount.

        Raises:
            MeshUnavailable: The owner has as much as one may have, or all of it is in use.
        """
        if not self._fits(owner, amount):
            raise self._full(owner)
        self._used[owner] += amount
        self._total += amount

    def give(self, owner: str, amount: int = 1) -> None:
        """Release an amount."""
        self._used[owner] -= amount
        self._total -= amount
        if self._used[owner] <= 0:
            del self._used[owner]
        self._freed.set()

    @asynccontextmanager
    async def held(self, owner: str, amount: int = 1) -> AsyncGenerator[None]:
        """Hold an amount within the block, waiting for it where it is in use.

        Raises:
            MeshUnavailable: It was still in use after the wait, or is more than one owner may have.
        """
        await self.acquire(owner, amount)
        try:
            yield
        finally:
            self.give(owner, amount)

    async def acquire(self, owner: str, amount: int = 1) -> None:
        """Take an amount, waiting for it where it is in use.

        Raises:
            MeshUnavailable: It was still in use after the wait, or is more than one owner may have.
        """
        if amount > (self.part if owner else self.most):
            raise self._full(owner)
        try:
            async with asyncio.timeout(self._wait_seconds):
                while not self._fits(owner, amount):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            raise self._full(owner) from None
        self.take(owner, amount)

    def _fits(self, owner: str, amount: int) -> bool:
        own = not owner or self._used[owner] + amount <= self.part
        return own and self._total + amount <= self.most

    def _full(self, owner: str) -> MeshUnavailable:
        whose = f"{owner} has {self._used[owner]} of at most {self.part}, " if owner else ""
        message = f"{self._what}: {whose}{self._total} of {self.most} are in use; end some, or try again later"
        return MeshUnavailable(message, {"bound": self._what}, retry_after=RETRY_SECONDS)
