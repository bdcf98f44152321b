"""Replies by their requests' ids, so that a repeated request runs nothing twice.

They are bounded for the door and for each owner, a large one is kept for a client's retries only, and the oldest make
room. Of a reply that had to go its id stays for a while: a request that repeats it is refused, and does not run again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.swerex.places import RuntimePlace
from sandmeshd.tenants.shares import PARTS

Reply: TypeAlias = tuple[int, bytes]

LARGE: Final = 64 << 10
"""Bytes from which on a reply is kept for RETRY_SECONDS only."""

RETRY_SECONDS: Final = 60.0
MOST_BYTES: Final = 64 << 20
"""Of all replies that are kept; a quarter of it for one owner."""

MOST: Final = 16_000
"""Of all requests that are remembered; a quarter of it for one owner."""

MOST_OF_PLACE: Final = 64


@dataclass(eq=False)
class _Kept:
    owner: str
    task: asyncio.Task[Reply] | None
    """None once the reply had to go."""

    size: int = 0
    done_at: float = 0.0


@dataclass(eq=False)
class _Owner:
    kept: OrderedDict[tuple[RuntimePlace, str], _Kept] = field(
        default_factory=OrderedDict[tuple[RuntimePlace, str], _Kept]
    )
    places: dict[RuntimePlace, dict[str, None]] = field(default_factory=dict[RuntimePlace, dict[str, None]])
    """The ids of the requests of each place, the oldest first."""

    size: int = 0


class Replies:
    """The replies of a door."""

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return sum(owner.size for owner in self._owners.values())

    async def reply(self, place: RuntimePlace, request_id: str, make: Callable[[], Awaitable[Reply]]) -> Reply:
        """Return the reply to a request; one without an id is always made again.

        Raises:
            RequestError: It repeats one whose reply is no longer kept, or its owner has too many under way.
        """
        if not request_id:
            return await make()
        name, owner = (place, request_id), place.owner
        own = self._owners.setdefault(owner, _Owner())
        found = own.kept.get(name)
        if found is not None and found.task is None:
            raise RequestError(409, "the reply to this request is no longer kept: it was large, or others made room")
        if found is None:
            found = self._begin(own, owner, name, make)
        assert found.task is not None  # noqa: S101 - as just looked
        # A client that leaves ends nothing: it may ask again.
        return await asyncio.shield(found.task)

    def drop(self, place: RuntimePlace) -> None:
        """Forget what a runtime that was closed replied; what is under way is not kept when it is done."""
        owner = place.owner
        own = self._owners.get(owner)
        for request_id in list(own.places.get(place, ())) if own else []:
            self._remove(owner, (place, request_id))

    def _begin(
        self, own: _Owner, owner: str, name: tuple[RuntimePlace, str], make: Callable[[], Awaitable[Reply]]
    ) -> _Kept:
        self._make_room(own, owner, name[0])
        kept = own.kept[name] = _Kept(owner, asyncio.ensure_future(make()))
        own.places.setdefault(name[0], {})[name[1]] = None
        assert kept.task is not None  # noqa: S101 - as just set
        kept.task.add_done_callback(lambda task: self._settle(owner, name, kept, task))
        return kept

    def _make_room(self, own: _Owner, owner: str, place: RuntimePlace) -> None:
        here = own.places.get(place, {})
        ended = [name for request_id in here if own.kept[name := (place, request_id)].done_at]
        for name in ended[: max(0, len(here) - MOST_OF_PLACE + 1)]:
            self._remove(owner, name)
        if len(own.kept) >= MOST // PARTS:
            oldest = next((name for name, one in own.kept.items() if one.done_at), None)
            if oldest is None:
                raise RequestError(429, f"{len(own.kept)} requests are under way: wait for some of them to end")
            self._remove(owner, oldest)

    def _settle(self, owner: str, name: tuple[RuntimePlace, str], kept: _Kept, task: asyncio.Task[Reply]) -> None:
        own = self._owners.get(owner)
        if own is None or own.kept.get(name) is not kept:
            return
        if task.cancelled() or task.exception() is not None:
            self._remove(owner, name)
            return
        kept.size, kept.done_at = len(task.result()[1]), time.monotonic()
        own.size += kept.size
        if kept.size > LARGE:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._empty, owner, name, kept)
        if own.size <= MOST_BYTES // PARTS and self.size <= MOST_BYTES:
            return
        for older, one in list(own.kept.items()):
            # The newest has all the room that there is, for a client that asks again.
            part = MOST_BYTES if one is kept else MOST_BYTES // PARTS
            if own.size <= part and self.size <= MOST_BYTES:
                continue
            self._empty(owner, older, one)

    def _empty(self, owner: str, name: tuple[RuntimePlace, str], kept: _Kept) -> None:
        own = self._owners.get(owner)
        if own is not None and own.kept.get(name) is kept and kept.done_at:
            own.size -= kept.size
            kept.size, kept.task = 0, None

    def _remove(self, owner: str, name: tuple[RuntimePlace, str]) -> None:
        own = self._owners[owner]
        own.size -= own.kept.pop(name).size
        place, request_id = name
        del own.places[place][request_id]
        if not own.places[place]:
            del own.places[place]
        if not own.kept:
            del self._owners[owner]
