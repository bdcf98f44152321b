"""Reads of records that change nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandmeshd.allocator.records.records import RecordState, record_from
from sandmeshd.store import Store


@dataclass(frozen=True)
class UsageCounts:
    """What the mesh uses; `next_expire_us` is 0 where there is no lease. Counts are by template, node and caller."""

    used: int
    next_expire_us: int
    pooled: Mapping[str, int]
    templates: Mapping[str, int] = field(default_factory=dict[str, int])
    nodes: Mapping[str, int] = field(default_factory=dict[str, int])
    callers: Mapping[str, int] = field(default_factory=dict[str, int])
    queued: int = 0


@dataclass(frozen=True)
class Census:
    """How many leases are in force, how many requests are queued, and how many sandboxes have records."""

    leases: int
    queued: int
    records: int


class RecordReader:
    """The records of a mesh, to be read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, sandbox_id: str) -> RecordState | None:
        """Read a record, or None where there is none."""
        fields = await self._store.hash("sandbox", sandbox_id)
        return RecordState({**fields, "id": sandbox_id.encode()}) if fields else None

    async def page(self, session: str, labels: Mapping[str, str], after: str, limit: int) -> list[RecordState]:
        """Read records by id: of a session, with all of some labels, or of all where both are empty."""
        arguments = {"session": session, "labels": label_names(labels), "after": after, "limit": limit}
        return [record_from(pairs) for pairs in await self._store.run("list", arguments)]

    async def pooled(self, limit: int) -> list[RecordState]:
        """Read the records of the unused sandboxes of pools."""
        return [record_from(pairs) for pairs in await self._store.run("pooled", {"limit": limit})]

    async def paused(self, after_us: int) -> tuple[int, list[str]]:
        """Return the sandboxes that were paused after a moment, and the moment to name the next time."""
        moment, *found = await self._store.run("paused", {"after_us": after_us})
        return int(float(moment)), [one.decode() for one in found]

    async def capacity(self) -> UsageCounts:
        """Return what the mesh uses."""
        used, soonest, *flat, queued = await self._store.run("capacity", {})
        pooled, templates, nodes, callers = map(_counts, flat)
        return UsageCounts(int(used), int(float(soonest)), pooled, templates, nodes, callers, int(queued))

    async def census(self) -> Census:
        """Count leases, queued requests and records."""
        leases, queued, records = await self._store.run("census", {})
        return Census(int(leases), int(queued), int(records))

    async def was_deleted(self, sandbox_id: str) -> bool:
        """Return whether a sandbox existed and was deleted recently.

        Raises:
            Recovering: This is unknown while records are being rebuilt.
        """
        return bool((await self._store.run("was_deleted", {"id": sandbox_id}))[0])


def label_names(labels: Mapping[str, str]) -> list[str]:
    """Return the name of each label in the index: unambiguous whatever characters key and value have."""
    return [json.dumps([key, value]) for key, value in sorted(labels.items())]


def _counts(flat: Sequence[bytes | int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, count in zip(flat[::2], flat[1::2], strict=True):
        key = name.decode() if isinstance(name, bytes) else str(name)
        counts[key] = counts.get(key, 0) + int(count)
    return counts
