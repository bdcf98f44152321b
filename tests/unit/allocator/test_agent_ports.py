"""Ports that sandboxes' agents are reached at: leased, found to be in use, exhausted and released."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import CapabilityMissing, PoolExhausted, RuntimeUnavailable, SandboxStartFailed
from tests.unit.allocator.conftest import Mesh
from tests.unit.store.waiting import until


@pytest.fixture
def ported(mesh: Mesh) -> Mesh:
    """Give a mesh whose node has three ports, one for each agent."""
    mesh.runtime.agent_port = True
    mesh.runtime.ports = (20000, 20002)
    return mesh


def _taken(*ports: int) -> list[SandboxStartFailed]:
    return [SandboxStartFailed(f"port {port} is somebody else's", {"taken_port": str(port)}) for port in ports]


async def _leases(mesh: Mesh) -> dict[str, str]:
    return {port: holder.decode() for port, holder in (await mesh.store.hash("ports", "node-1")).items()}


async def _until_leases(mesh: Mesh, wanted: dict[str, str]) -> None:
    async def reached() -> bool:
        return await _leases(mesh) == wanted

    await until(reached)


async def test_an_agent_has_a_port_beside_those_that_were_asked_for(ported: Mesh) -> None:
    async with ported.allocator() as allocator:
        sandbox = (await allocator.claim("one", ports=2)).sandbox
        [request] = ported.runtime.created
        assert (list(request.ports), request.spec.port_count) == ([20000, 20001, 20002], 2)
        await allocator.release(sandbox)
        await _until_leases(ported, {})
        with pytest.raises(CapabilityMissing, match="3 ports"):
            await allocator.claim("one", ports=3)


async def test_a_port_that_is_somebody_elses_is_marked_and_the_next_one_taken(ported: Mesh) -> None:
    ported.runtime.failures += _taken(20000, 20001)
    async with ported.allocator() as allocator:
        sandbox = (await allocator.claim("one")).sandbox
        assert list(sandbox.ports) == [20002]
        assert await _leases(ported) == {"20000": "", "20001": "", "20002": sandbox.sandbox_id}
        events = [event for event in await allocator.events(sandbox.sandbox_id) if event.kind == "retried"]
        assert [event.reason for event in events] == ["port 20000 is not free", "port 20001 is not free"]
        await allocator.release(sandbox)
        await _until_leases(ported, {"20000": "", "20001": ""})


async def test_a_port_that_was_somebody_elses_is_leased_again_after_its_time(ported: Mesh) -> None:
    ported.runtime.failures += _taken(20000)
    async with ported.allocator(clash_seconds=0) as allocator:
        ids = [(await allocator.claim(name)).sandbox.sandbox_id for name in ("one", "two", "three")]
        assert set((await _leases(ported)).values()) == set(ids)


async def test_ports_of_which_each_is_somebody_elses_fail_the_start_by_name_and_leave_no_lease(ported: Mesh) -> None:
    ported.runtime.failures += _taken(20000, 20001, 20002)
    async with ported.allocator(create_pause_seconds=0.01) as allocator:
        with pytest.raises(RuntimeUnavailable, match="no other to lease") as caught:
            await allocator.claim("one")
        assert "20000 to 20002" in caught.value.facts["fix"]
        assert await _leases(ported) == {"20000": "", "20001": "", "20002": ""}
        assert (await allocator.capacity()).used == 0


async def test_ports_that_are_all_leased_are_a_bound_that_requests_wait_at(ported: Mesh) -> None:
    async with ported.allocator() as allocator:
        made = await asyncio.gather(*(allocator.claim(name) for name in ("one", "two", "three")))
        with pytest.raises(PoolExhausted, match="ports of the nodes node-1") as caught:
            await allocator.claim("four", timeout=2)
        facts = caught.value.facts
        assert (facts["bound"], facts["used"], facts["limit"]) == ("ports", "3", "3")
        await allocator.release(made[0].sandbox)
        await _until_leases(ported, {str(one.sandbox.ports[0]): one.sandbox.sandbox_id for one in made[1:]})
        sandbox = (await allocator.claim("four")).sandbox
        assert list(sandbox.ports) == list(made[0].sandbox.ports)


async def test_a_pool_s_sandbox_keeps_its_port_when_it_is_claimed(ported: Mesh) -> None:
    async with ported.allocator(pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        before = await _leases(ported)
        sandbox = (await allocator.claim("one")).sandbox
        assert before == {str(port): sandbox.sandbox_id for port in sandbox.ports}
        assert sandbox.state == pb.SANDBOX_STATE_READY
