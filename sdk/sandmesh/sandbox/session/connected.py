"""The sessions that one event loop has connected, with the boxes of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sandmesh._client.connection import Connection, release
from sandmesh._client.messages import write_spec
from sandmesh.api.session.v1 import session_pb2
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.session.info import BoxSession, Ids
from sandmesh.sandbox.session.lease import Lifetimes, SessionLease

B = TypeVar("B")


@dataclass(frozen=True)
class BoxOpener(Generic[B]):
    """How a box is made for a type and a sandbox id, and which async box does its work."""

    make: Callable[[str, str], B]
    twin: Callable[[B], SandboxAsync]


@dataclass
class _LeasedBoxes(Generic[B]):
    """The lease on a session, and the boxes that were returned for it, by type."""

    lease: SessionLease
    boxes: dict[str, B] = field(default_factory=dict[str, B])


class ConnectedSessions(Generic[B]):
    """The connected sessions of one event loop."""

    def __init__(self, connection: Connection, timeout: float, lifetimes: Lifetimes, opener: BoxOpener[B]) -> None:
        self._connection = connection
        self._timeout = timeout
        self._lifetimes = lifetimes
        self._opener = opener
        self._entries: dict[Ids, _LeasedBoxes[B]] = {}
        self._lock = asyncio.Lock()

    async def connect(self, ids: Ids, types: Sequence[str]) -> list[B]:
        """Connect a session and return its boxes, one of each type."""
        async with self._lock:
            entry = self._entries.get(ids) or _LeasedBoxes[B](SessionLease(self._connection, *ids, self._lifetimes))
            slots = [session_pb2.SlotSpec(spec=write_spec(kind, {})) for kind in types]
            connected = await entry.lease.connect(slots, self._timeout)
            self._entries[ids] = entry
            for kind in types:
                await self._open_box(entry, kind, connected.session.sandboxes[kind].sandbox_id)
                is_new = kind in connected.created_slots
                self._opener.twin(entry.boxes[kind]).session = BoxSession(*ids, is_new)
            return [entry.boxes[kind] for kind in types]

    async def release(self, ids: Ids) -> None:
        """End a session."""
        async with self._lock:
            await self._release(ids)

    async def release_all(self) -> None:
        """End all connected sessions."""
        async with self._lock:
            for ids in list(self._entries):
                await self._release(ids)

    async def _release(self, ids: Ids) -> None:
        entry = self._entries.pop(ids, None) or _LeasedBoxes[B](SessionLease(self._connection, *ids, self._lifetimes))
        await self._close_boxes(entry)
        await entry.lease.release(self._timeout)

    async def close(self) -> None:
        """Stop renewing the sessions and close their boxes."""
        async with self._lock:
            for entry in self._entries.values():
                await entry.lease.drop()
                await self._close_boxes(entry)
            self._entries.clear()
        await release(self._connection)

    async def _open_box(self, entry: _LeasedBoxes[B], kind: str, sandbox_id: str) -> None:
        # The same ids return the same box, unless its sandbox was lost and replaced or the box was closed.
        box = entry.boxes.get(kind)
        twin = None if box is None else self._opener.twin(box)
        if twin is None or not twin.is_open or twin.sandbox_id != sandbox_id:
            entry.boxes[kind] = box = self._opener.make(kind, sandbox_id)
            await self._opener.twin(box).start()

    async def _close_boxes(self, entry: _LeasedBoxes[B]) -> None:
        for box in entry.boxes.values():
            await self._opener.twin(box).close()
