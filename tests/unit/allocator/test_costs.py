"""What sandboxes cost by their driver's prices, and the cap of a day."""

from __future__ import annotations

import pytest

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import QuotaExceeded
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.process_driver import ProcessDriver
from tests.unit.allocator.test_usage import usage_of
from tests.unit.store.waiting import until

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
