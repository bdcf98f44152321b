"""The sandboxes that clients are using: a handle of each, in the name of its client's token."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from sandmesh import SandboxAsync
from sandmesh.errors import NotFound, SandboxLost
from sandmeshd.facades.answers import RequestError

MOST: Final = 1_000
SECONDS: Final = 60.0
"""How long a call may take: clients wait no longer."""


class BoxHandles:
    """Handles by token and id; those not used for longest are closed first, and their sandboxes stay."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._boxes: OrderedDict[tuple[str, str], SandboxAsync] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def box(self, token: str, identity: str) -> SandboxAsync:
        """Return the handle of a sandbox.

        Raises:
            RequestError: There is none of that id, or it is another user's.
        """
        name = (token, identity)
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            found = self._boxes.get(name)
            if found is None:
                found = self._boxes[name] = await self._open(token, identity)
        self._boxes.move_to_end(name)
        while len(self._boxes) > MOST:
            _, oldest = self._boxes.popitem(last=False)
            await oldest.close()
        return found

    async def forget(self, token: str, identity: str) -> None:
        """Close the handle of a sandbox that has ended."""
        box = self._boxes.pop((token, identity), None)
        if box is not None:
            await box.close()

    async def close(self) -> None:
        """Close all handles; the sandboxes stay."""
        for token, identity in list(self._boxes):
            await self.forget(token, identity)

    async def _open(self, token: str, identity: str) -> SandboxAsync:
        box = SandboxAsync(identity, SECONDS, self._address, token or None)
        try:
            return await box.start()
        except (NotFound, SandboxLost, ValueError):
            raise RequestError(404, f"No container found with id: {identity}.") from None
