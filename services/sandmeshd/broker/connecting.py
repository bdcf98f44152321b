"""Connecting a session: all its claims at once, and what has to be undone when one fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import cast

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.broker.identity import Identity
from sandmeshd.broker.leases import Leases
from sandmeshd.broker.records import SessionRecord, SessionRecords


class Connecting:
    """The claims of one request, and what of them was new."""

    def __init__(self, leases: Leases, records: SessionRecords, who: Identity) -> None:
        self._leases = leases
        self._who = who
        self._records = records
        self._opening: asyncio.Task[SessionRecord] | None = None
        self._opened: SessionRecord | None = None
        self._began = time.monotonic()
        self._began_us = 0
        self._created: list[sandbox_pb2.Sandbox] = []
        self._unanswered: set[str] = set()

    @property
    def created_slots(self) -> list[str]:
        """The slots that this request filled."""
        return sorted(sandbox.slot for sandbox in self._created)

    async def claim(
        self, slots: Sequence[pb.SlotSpec], timeout: float | None
    ) -> tuple[SessionRecord, list[sandbox_pb2.Sandbox]]:
        """Claim every slot, and make the session's record meanwhile; when one fails the others are not waited for.

        Raises:
            SandmeshError: The first failure.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._claim(slot, timeout)) for slot in slots]
                # The claims go first: more is waited for behind them.
                opening = self._opening = asyncio.create_task(self._open())
        except BaseExceptionGroup as failed:
            raise _leaf(failed) from None
        return await asyncio.shield(opening), [task.result() for task in tasks]

    async def _open(self) -> SessionRecord:
        record = self._opened = await self._records.open(self._who)
        self._began_us = record.opened_us - round((time.monotonic() - self._began) * 1e6)
        return record

    async def _claim(self, slot: pb.SlotSpec, timeout: float | None) -> sandbox_pb2.Sandbox:
        name = slot.slot or slot.spec.template
        self._unanswered.add(name)
        try:
            response = await self._leases.claim(self._who, slot, timeout)
        except SandmeshError:
            self._unanswered.discard(name)
            raise
        self._unanswered.discard(name)
        if response.claimed:
            self._created.append(response.sandbox)
        return response.sandbox

    async def undo(self) -> None:
        """Release what was new, also where the answer that said so was no longer waited for; the record too."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        found = await self._leases.of_session(self._who.session_key) if self._unanswered else []
        # A token is at least the time of its lease: this one was taken since the request came, by the store's clock.
        since = self._began_us
        fresh = [one for one in found if since and one.slot in self._unanswered and _leased_since(one, since)]
        await self._leases.release([*self._created, *fresh])
        if self._opened is not None and self._opened.made:
            await self._records.close(self._who)


def _leased_since(sandbox: sandbox_pb2.Sandbox, microseconds: int) -> bool:
    return sandbox.lease.fencing_token >= microseconds


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _leaf(cast("BaseExceptionGroup[BaseException]", first)) if isinstance(first, BaseExceptionGroup) else first
