"""The events of sandboxes: reading, following and appending."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.shared.numbers import decimal
from sandmeshd.allocator.records.records import timestamp
from sandmeshd.store import Store

_BATCH = 500
_LARGEST = (1 << 64) - 1


class EventLog:
    """The events of a mesh: bounded, append-only, kept for a while after a sandbox is gone."""

    def __init__(self, store: Store, poll_seconds: float) -> None:
        self._store = store
        self._poll_seconds = poll_seconds

    async def append(self, sandbox_id: str, kind: str, reason: str, actor: str) -> bool:
        """Append an event that no change of a record causes, such as a refused connection.

        Return False where the sandbox does not exist.
        """
        arguments = {"id": sandbox_id, "kind": kind, "reason": reason, "actor": actor}
        return bool((await self._store.run("append", arguments))[0])

    async def read(self, sandbox_id: str, after: str, limit: int) -> list[pb.SandboxEvent]:
        """Return the events after one, oldest first; without one the newest. An empty id means the whole mesh.

        Raises:
            InvalidArgument: `after` is not the id of an event.
        """
        _check(after)
        arguments = {"id": sandbox_id, "after": after, "limit": limit, "newest": not after}
        flat = await self._store.run("events", arguments)
        found = [_event(flat[at].decode(), flat[at + 1]) for at in range(0, len(flat), 2)]
        return found if after else found[::-1]

    async def follow(self, sandbox_id: str, after: str) -> AsyncIterator[pb.SandboxEvent]:
        """Yield the events after one, or from now on, as they happen."""
        if not after:
            newest = await self.read(sandbox_id, "", 1)
            after = newest[0].event_id if newest else "0-0"
        while True:
            found = await self.read(sandbox_id, after, _BATCH)
            for event in found:
                after = event.event_id
                yield event
            if not found:
                await asyncio.sleep(self._poll_seconds)


def _check(after: str) -> None:
    moment, _, number = after.partition("-")
    if after and (decimal(moment, _LARGEST) is None or decimal(number, _LARGEST) is None):
        raise InvalidArgument("after_event_id must be an event id, like 1700000000000-0", {"field": "after_event_id"})


def _event(event_id: str, flat: Sequence[bytes]) -> pb.SandboxEvent:
    fields = {flat[at].decode(): flat[at + 1].decode(errors="replace") for at in range(0, len(flat), 2)}
    return pb.SandboxEvent(
        event_id=event_id,
        sandbox_id=fields.get("sandbox", ""),
        time=timestamp(int(event_id.partition("-")[0]) * 1000),
        kind=fields.get("kind", ""),
        reason=fields.get("reason", ""),
        actor=fields.get("actor", ""),
        session_key=fields.get("session", ""),
        user_id=fields.get("user", ""),
        project=fields.get("project", ""),
        phases=list(_phases(fields.get("phases", ""))),
    )


def _phases(text: str) -> Iterator[pb.Phase]:
    """Read phases as `RecordStore.ready` writes them: names with microseconds."""
    for word in text.split():
        name, _, microseconds = word.partition("=")
        one = pb.Phase(name=name)
        one.duration.FromMicroseconds(int(microseconds))
        yield one
