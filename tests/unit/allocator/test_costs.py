"""What sandboxes cost by their driver's prices, and the cap of a day."""

from __future__ import annotations

import pytest

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import QuotaExceeded
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.store import Store
from sandmeshd.tenants.usage import count_usage
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.made_records import claim_of, commands_run, make_pooled, make_ready
from tests.unit.allocator.process_driver import ProcessDriver
from tests.unit.allocator.test_usage import usage_of
from tests.unit.store.waiting import commands, until

PRICE = 5 * 10**9
"""5 a second."""


class Priced(ProcessDriver):
    """A driver with a price table."""

    async def create_sandbox(self, request: driver_pb2.CreateSandboxRequest) -> driver_pb2.CreateSandboxResponse:
        made = await super().create_sandbox(request)
        made.sandbox.nano_price = PRICE
        return made


async def cost_of(mesh: Mesh, sandbox_id: str = "") -> float:
    """Return what one sandbox, or the project, cost."""
    found = await usage_of(mesh.store, sandbox_id=sandbox_id)
    return sum(one.cost for one in (found.sandboxes if sandbox_id else found.projects))


async def test_a_sandbox_costs_from_its_create_to_its_delete(mesh: Mesh) -> None:
    async with mesh.over({"process": Priced(mesh.runtime)}) as allocator:
        made = (await allocator.claim("one")).sandbox
        first = (await allocator.get(made.sandbox_id)).cost
        # It rises while the sandbox is there; an inspection counts up to now.
        assert 0 < first < (await allocator.get(made.sandbox_id)).cost
        await allocator.release(made)
        await allocator.until_used(0)
        spent = await cost_of(mesh, made.sandbox_id)
        assert spent > first
        assert await cost_of(mesh) == pytest.approx(spent)
        # It is gone, and costs no more.
        assert await cost_of(mesh, made.sandbox_id) == spent


async def test_a_sandbox_in_a_pool_costs_too(mesh: Mesh) -> None:
    async with mesh.over({"process": Priced(mesh.runtime)}, pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        before = await cost_of(mesh)
        assert 0 < before < await cost_of(mesh)


async def test_what_costs_without_being_held_is_known_at_each_of_its_steps(mesh: Mesh) -> None:
    async def unheld() -> set[str]:
        return {name.decode() for name in await commands(mesh.store).smembers(mesh.store.key("unheld"))}

    async with mesh.over({"process": Priced(mesh.runtime)}, pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        [pooled] = await unheld()
        made = (await allocator.claim("one")).sandbox
        assert made.sandbox_id == pooled
        assert pooled not in await unheld()
        await allocator.until_pooled("base", 1)
        [refilled] = await unheld()
        assert refilled != pooled
        await allocator.release(made)

        async def released_is_gone() -> bool:
            return await unheld() == {refilled} and pooled not in (await mesh.store.hash("priced"))

        await until(released_is_gone)


async def test_time_and_cost_of_many_are_counted_with_five_commands_each(store: Store) -> None:
    await store.run("open", {})
    await store.refresh_generation()
    await make_ready(store, "held", 300, price=PRICE)
    await make_pooled(store, 300, price=PRICE)
    began = await commands_run(store)
    await count_usage(store)
    # Of each its record and its usage are read and written, and it is the one that was counted last.
    assert 600 * 5 <= await commands_run(store) - began < 600 * 5 + 100
    rows = [
        await store.hash("usage", "sandbox", f"sb_{name}{number}") for name in ("held", "pool") for number in range(300)
    ]
    assert all(int(row["cost_nano"]) > 0 for row in rows)
    assert [("sandbox_ms" in row) for row in rows] == [True] * 300 + [False] * 300
    total = await store.hash("usage", "total")
    for measure in ("cost_nano", "sandbox_ms"):
        assert int(total[f"{measure}:default"]) == sum(int(row.get(measure, 0)) for row in rows)


async def test_a_sandbox_of_a_driver_without_prices_costs_nothing(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        made = (await allocator.claim("one")).sandbox
        assert (await allocator.get(made.sandbox_id)).cost == 0
        assert await cost_of(mesh) == 0


async def test_the_cap_of_a_day_stops_creates_and_says_so(mesh: Mesh) -> None:
    async with mesh.over({"process": Priced(mesh.runtime)}, cost_per_day=0.5) as allocator:
        made = (await allocator.claim("one")).sandbox

        async def spent() -> bool:
            return await cost_of(mesh) >= 0.5

        await until(spent)
        with pytest.raises(
            QuotaExceeded, match=r"cost \S+ today, and may cost 0\.5 a day.*SANDMESH_COST_PER_DAY"
        ) as stopped:
            await allocator.claim("two")
        facts = stopped.value.facts
        assert (facts["quota"], facts["of"], facts["limit"]) == ("cost_per_day", "mesh", "0.5")
        assert float(facts["used"]) >= 0.5
        # What is there goes on.
        assert (await allocator.claim("one")).sandbox.sandbox_id == made.sandbox_id
        assert len(mesh.runtime.created) == 1


async def test_a_claim_under_a_cap_is_as_many_commands_whatever_costs(store: Store) -> None:
    await store.run("open", {})
    await store.refresh_generation()
    await make_ready(store, "first", 1, price=PRICE)
    few = await _claim_commands(store, "few")
    await make_ready(store, "more", 300, price=PRICE)
    assert await commands(store).hlen(store.key("priced")) == 301
    # What happens beside it is a few commands; a look at each priced sandbox would be hundreds.
    assert await _claim_commands(store, "many") < few + 50


async def test_the_cap_s_running_total_is_what_the_sandboxes_cost(mesh: Mesh) -> None:
    async with mesh.over({"process": Priced(mesh.runtime)}, cost_per_day=10**6) as allocator:
        held = [(await allocator.claim(f"s{number}")).sandbox for number in range(3)]
        await allocator.release(held[0])
        await allocator.until_used(2)
        await mesh.runtime.kill(held[1].sandbox_id)
        await allocator.until_state(held[1].sandbox_id, pb.SANDBOX_STATE_LOST)
        assert int((await mesh.store.hash("costs"))["rate"]) == PRICE
        await allocator.release(held[2])
        await allocator.until_used(0)
    spent = await cost_of(mesh)
    costs = await mesh.store.hash("costs")
    assert costs["rate"] == b"0"
    assert int(costs["spent"]) / 1e9 == pytest.approx(spent, rel=1e-6)
    assert not await mesh.store.hash("priced")


async def test_the_cap_begins_anew_each_day_and_what_is_there_goes_on_costing(mesh: Mesh) -> None:
    async with mesh.over({"process": Priced(mesh.runtime)}, cost_per_day=10**6) as allocator:
        await allocator.claim("one")
        day_us = 86_400_000_000
        # As if all of it had been yesterday.
        yesterday = int((await mesh.store.hash("costs"))["at_us"]) - day_us
        await commands(mesh.store).hset(mesh.store.key("costs"), mapping={"spent": 10**15 * 2, "at_us": yesterday})
        await allocator.claim("two")
        costs = await mesh.store.hash("costs")
        # Of the first one today's part alone, which is since midnight.
        today_us = int(costs["at_us"]) % day_us
        assert int(costs["spent"]) == pytest.approx(PRICE * today_us / 1e6, rel=1e-3, abs=PRICE * 5)
        assert int(costs["rate"]) == 2 * PRICE


async def _claim_commands(store: Store, name: str) -> int:
    """Return how many commands the server runs for a claim under a cap, those inside of the script included."""
    records = RecordStore(store, 10_000_000, cost_per_day=10**6)
    before = await commands_run(store)
    assert (await records.claim(claim_of(name), "")).kind == "create"
    return await commands_run(store) - before
