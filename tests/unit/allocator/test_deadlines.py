"""Idle times, and what counts as use."""

from __future__ import annotations

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.shared.wire_errors import translated
from tests.unit.allocator.conftest import Allocator, Mesh
from tests.unit.store.waiting import commands


async def _idle_end(mesh: Mesh, sandbox_id: str) -> float:
    return float(await commands(mesh.store).zscore(mesh.store.key("idle"), sandbox_id) or 0)


async def _report(allocator: Allocator, *sandbox_ids: str) -> None:
    with translated():
        await allocator.stub.ReportActivity(pb.ReportActivityRequest(sandbox_ids=sandbox_ids))


async def test_a_sandbox_that_nobody_uses_is_given_back_though_it_is_renewed(mesh: Mesh) -> None:
    async with mesh.allocator(min_idle_seconds=0.01) as allocator:
        kept = (await allocator.claim("two")).sandbox
        idle = (await allocator.claim("one", idle=0.8)).sandbox
        # It is renewed while it is there.
        await allocator.renew(idle)
        assert idle.idle_timeout.ToMilliseconds() == 800
        await allocator.until_used(1)
        assert list(mesh.runtime.processes) == [kept.sandbox_id]
        kinds = [(event.kind, event.reason) for event in await allocator.events(idle.sandbox_id)]
        assert ("stopping", "it was not used for its idle time") in kinds


async def test_reported_use_moves_the_idle_end_and_a_renewal_does_not(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one", idle=60)).sandbox
        before = await _idle_end(mesh, sandbox.sandbox_id)
        await allocator.renew(sandbox)
        assert await _idle_end(mesh, sandbox.sandbox_id) == before
        await _report(allocator, sandbox.sandbox_id, "sb_unknown")
        assert await _idle_end(mesh, sandbox.sandbox_id) > before


async def test_one_without_an_idle_time_has_none_and_a_new_claim_of_the_slot_states_it_anew(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one")).sandbox
        await _report(allocator, sandbox.sandbox_id)
        assert await _idle_end(mesh, sandbox.sandbox_id) == 0
        await allocator.claim("one", idle=60)
        assert await _idle_end(mesh, sandbox.sandbox_id) > 0
        await allocator.claim("one")
        assert await _idle_end(mesh, sandbox.sandbox_id) == 0


async def test_an_idle_time_shorter_than_reports_come_is_refused(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        with pytest.raises(InvalidArgument, match="idle_timeout"):
            await allocator.claim("one", idle=0.5)
