"""The entries of the audit in the store. Nothing changes or deletes one; the oldest leave when there are too many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog
from google.protobuf.message import DecodeError

from sandmesh.api.audit.v1 import audit_pb2 as pb
from sandmeshd.store import Store

log = structlog.get_logger()

_PAGE = 500

Fitting = Callable[[Sequence[pb.AuditEntry]], Awaitable[Sequence[pb.AuditEntry]]]
"""Returns those of some entries that a listing is to have."""


class AuditRecords:
    """The audit of one store, which keeps about `limit` entries."""

    def __init__(self, store: Store, limit: int) -> None:
        self._store = store
        self._limit = limit

    async def append(self, entries: Sequence[pb.AuditEntry]) -> None:
        """Append entries in order."""
        await self._store.run("audit_append", {"limit": self._limit}, *(entry.SerializeToString() for entry in entries))

    async def newest(self, fitting: Fitting, limit: int) -> list[pb.AuditEntry]:
        """Return the newest entries that fit, the newest last."""
        found: list[pb.AuditEntry] = []
        before = ""
        while len(found) < limit:
            page = await self._store.run("audit_list", {"before": before, "count": _PAGE})
            entries = [_entry(page[index], page[index + 1]) for index in range(0, len(page), 2)]
            found += await fitting([entry for entry in entries if entry is not None])
            if len(entries) < _PAGE:
                break
            before = page[-2].decode()
        return found[:limit][::-1]


def _entry(entry_id: bytes, data: bytes) -> pb.AuditEntry | None:
    try:
        entry = pb.AuditEntry.FromString(data)
    except DecodeError:
        log.warning("an entry of the audit cannot be read", entry_id=entry_id.decode())
        return None
    entry.entry_id = entry_id.decode()
    return entry
