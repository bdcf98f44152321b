"""The store away while sandboxes start: nothing that was begun is forgotten."""

from __future__ import annotations

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, Recovering, StoreUnavailable
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.records.record_store import Claim, RecordStore
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.runtime.retry import retry_until_available
from sandmeshd.store import Store
from tests.unit.allocator.states_world import NODES, want

HOUR_US = 3600 * 1_000_000


async def test_a_step_is_taken_again_until_the_store_answers() -> None:
    answers: list[Exception | str] = [StoreUnavailable("away"), Recovering("rebuilt"), "done"]

    async def step() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await retry_until_available(step) == "done"


async def test_a_refusal_is_not_repeated() -> None:
    async def step() -> str:
        raise InvalidArgument("no")

    with pytest.raises(InvalidArgument):
        await retry_until_available(step)


async def test_a_start_whose_allocator_does_not_know_of_it_fails_while_others_go_on(store: Store) -> None:
    records = RecordStore(store, 1)
    maintenance = MaintenanceStore(store, records, AllocatorSettings(owner_grace_seconds=1e-6))
    await maintenance.open()
    spec = pb.SandboxSpec(template="base")
    for name in ("known", "forgotten"):
        claim = Claim(f"s-{name}", "a", f"t-{name}", f"sb-{name}", HOUR_US, spec, want("base", 0, ""))
        assert (await records.claim(claim, "")).kind == "create"
    for _ in range(2):
        await maintenance.sweep(NODES, ["sb-known"])
    states = {name: await records.read(f"sb-{name}") for name in ("known", "forgotten")}
    assert {name: record and record.state for name, record in states.items()} == {
        "known": "PENDING",
        "forgotten": "FAILED",
    }
