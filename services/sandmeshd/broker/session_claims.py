"""The claims of a session: made in parallel, and undone when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.broker.identity import SessionIdentity
from sandmeshd.broker.leases import Leases
from sandmeshd.broker.records import SessionRecord, SessionRecords


class SessionClaims:
    """The claims of a request, and which of them created a sandbox."""

    def __init__(self, leases: Leases, records: SessionRecords, who: SessionIdentity) -> None:
        self._leases = leases
        self._who = who
        self._records = records
        self._record = asyncio.ensure_future(records.open(who))
        self._created: list[sandbox_pb2.Sandbox] = []
        self._unanswered: set[str] = set()

    @property
    def created_slots(self) -> list[str]:
        """The slots that this request filled."""
        return sorted(sandbox.slot for sandbox in self._created)

    async def claim(
        self, slots: Sequence[pb.SlotSpec], timeout: float | None
    ) -> tuple[SessionRecord, list[sandbox_pb2.Sandbox]]:
        """Claim every slot while the session's record is created; when one fails the others are not awaited.

        Raises:
            SandmeshError: The first failure.
        """
        # The record's request goes first: an idle store wakes up while the claims are prepared.
        await asyncio.sleep(0)
        claimed = [await self._claim(slots[0], timeout)] if len(slots) == 1 else await self._claim_all(slots, timeout)
        return await asyncio.shield(self._record), claimed

    async def _claim_all(self, slots: Sequence[pb.SlotSpec], timeout: float | None) -> list[sandbox_pb2.Sandbox]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._claim(slot, timeout)) for slot in slots]
        except BaseExceptionGroup as failed:
            raise _leaf(failed) from None
        return [task.result() for task in tasks]

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
        """Release what was created, also where its response was no longer awaited, and close the record."""
        await asyncio.wait([self._record])
        record = None if self._record.cancelled() or self._record.exception() else self._record.result()
        found = await self._leases.of_session(self._who.session_key) if self._unanswered else []
        # A token is at least the time of its lease: this one was taken since the request came.
        since = record.opened_us if record else 0
        fresh = [
            sandbox for sandbox in found if since and sandbox.slot in self._unanswered and _leased_since(sandbox, since)
        ]
        await self._leases.release([*self._created, *fresh])
        if record is not None and record.created:
            await self._records.close(self._who)


def _leased_since(sandbox: sandbox_pb2.Sandbox, microseconds: int) -> bool:
    return sandbox.lease.fencing_token >= microseconds


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _leaf(cast("BaseExceptionGroup[BaseException]", first)) if isinstance(first, BaseExceptionGroup) else first
