"""Many nodes: a claim looks at a few of them, and at all where those have no room."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

import pytest
from benchmarks.fleet.nodes import Behaviour, SimulatedNode

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import PoolExhausted, RuntimeUnavailable
from sandmeshd.allocator import AllocatorSettings
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.nodes.node_sample import DRAWN
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.record_store import Claim, RecordStore
from sandmeshd.store import Store
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.made_records import commands_run
from tests.unit.store.waiting import until

COUNT = 40
SPEC = pb.SandboxSpec(template="base")


class Down(SimulatedNode):
    """A node that does not answer, and counts how often it was asked."""

    asked = 0

    async def get_info(self, request: driver_pb2.GetInfoRequest) -> driver_pb2.GetInfoResponse:
        self.asked += 1
        raise RuntimeUnavailable("the node is down")


def simulated(count: int) -> list[SimulatedNode]:
    return [SimulatedNode(f"node-{number}", Behaviour(delay=0)) for number in range(count)]


async def refreshed(nodes: Sequence[SimulatedNode], **settings: object) -> Nodes:
    made = Nodes({node.node_id: node for node in nodes}, AllocatorSettings.model_validate(settings), BackgroundTasks())
    await made.refresh_all()
    return made


async def test_a_want_of_a_claim_names_a_few_of_many_nodes_and_each_in_its_turn() -> None:
    nodes = await refreshed(simulated(COUNT))
    named: Counter[str] = Counter()
    for _ in range(100):
        want = (await nodes.place(SPEC, drawn=True)).want
        assert want.partial
        assert len({node.id for node in want.nodes}) == DRAWN
        named.update(node.id for node in want.nodes)
    assert len(named) == COUNT


async def test_a_claim_is_as_many_commands_for_the_store_with_ten_times_the_nodes(store: Store) -> None:
    await store.run("open", {})
    await store.refresh_generation()
    # The first sends the script itself, which the server keeps.
    await claim_commands(store, COUNT // 2)
    few, many = await claim_commands(store, COUNT), await claim_commands(store, 10 * COUNT)
    # A connection that is opened meanwhile is a few commands; a look at each node would be hundreds.
    assert many < few + COUNT


async def claim_commands(store: Store, count: int) -> int:
    """Return how many commands the server runs for a claim, those inside of the script included."""
    nodes, records = await refreshed(simulated(count)), RecordStore(store, 10_000_000)
    placement = await nodes.place(SPEC, drawn=True)
    claim = Claim(f"s{count}", "box", f"t{count}", f"sb_{count}", 60_000_000, placement.spec, placement.want)
    before = await commands_run(store)
    assert (await records.claim(claim, "")).kind == "create"
    return await commands_run(store) - before


async def test_few_nodes_are_all_looked_at() -> None:
    nodes = await refreshed(simulated(DRAWN))
    want = (await nodes.place(SPEC, drawn=True)).want
    assert not want.partial
    assert len(want.nodes) == DRAWN


async def test_a_request_for_what_nodes_lack_is_placed_with_a_look_at_all_of_them() -> None:
    nodes = await refreshed(simulated(COUNT))
    kept = pb.SandboxSpec(template="base", snapshot_id="snap_one")
    assert not (await nodes.place(kept, drawn=True)).want.partial
    assert len((await nodes.place(SPEC)).want.nodes) == COUNT


async def test_nodes_whose_starts_fail_and_other_versions_of_a_template_are_not_drawn() -> None:
    many = simulated(COUNT)
    newer = many[1:6]
    for one in newer:
        one.info.templates[0].generation = "2"
    nodes = await refreshed(many)
    broken = nodes.all[10:15]
    for node in broken:
        for _ in range(3):
            node.breaker.failed()
    left_out = {one.node_id for one in newer} | {node.node_id for node in broken}
    for _ in range(50):
        want = (await nodes.place(SPEC, drawn=True)).want
        assert want.partial
        assert not left_out & {node.id for node in want.nodes}


async def test_nodes_of_another_driver_are_not_drawn() -> None:
    many = simulated(COUNT)
    others = {one.node_id for one in many[20:30]}
    for one in many[20:30]:
        one.info.name = "another"
    nodes = await refreshed(many)
    for driver, meant in (("", False), ("simulated", False), ("another", True)):
        for _ in range(20):
            want = (await nodes.place(pb.SandboxSpec(template="base", driver=driver), drawn=True)).want
            assert all((node.id in others) is meant for node in want.nodes)


async def test_nodes_are_found_by_their_ids() -> None:
    nodes = await refreshed(simulated(3))
    assert [node.node_id for node in nodes.all if nodes.by_id(node.node_id) is node] == ["node-0", "node-1", "node-2"]
    assert nodes.by_id("") is None
    assert nodes.by_id("node-9") is None


async def test_a_claim_does_not_wait_for_a_silent_node_while_another_answers() -> None:
    down = Down("node-down", Behaviour())
    nodes = await refreshed([*simulated(1), down])
    before = down.asked
    assert [node.id for node in (await nodes.place(SPEC)).want.nodes] == ["node-0"]
    assert down.asked == before


async def test_the_last_places_of_a_full_mesh_are_found_whatever_nodes_were_drawn(mesh: Mesh) -> None:
    drivers = {node.node_id: node for node in simulated(COUNT)}
    async with mesh.over(drivers, node_capacity=1) as allocator:
        claimed = [(await allocator.claim(f"s{number}")).sandbox for number in range(COUNT)]
        assert {sandbox.node_id for sandbox in claimed} == set(drivers)
        with pytest.raises(PoolExhausted) as caught:
            await allocator.claim("one more", timeout=3.0)
        assert caught.value.facts["bound"] == "node"
        assert caught.value.facts["limit"] == str(COUNT)
        await allocator.release(claimed[7])
        assert (await allocator.claim("next")).sandbox.node_id == claimed[7].node_id


async def test_who_waits_for_a_node_names_a_few_when_it_asks_again_and_the_queue_has_the_list_once(mesh: Mesh) -> None:
    drivers = {node.node_id: node for node in simulated(COUNT)}
    async with mesh.over(drivers, node_capacity=1, poll_seconds=0.05) as allocator:
        claimed = [(await allocator.claim(f"s{number}")).sandbox for number in range(COUNT)]
        waiting = [asyncio.create_task(allocator.claim(f"w{number}", timeout=60)) for number in range(5)]
        await until(lambda: _polled(mesh, 5, 40))
        assert len(await mesh.store.hash("queue_nodes")) == 1
        wants = [json.loads(want) for want in (await mesh.store.hash("queue_wants")).values()]
        assert [want["nodes_key"] for want in wants] == [*await mesh.store.hash("queue_nodes")] * 5
        # Whichever node becomes free, those that wait find it.
        for one in claimed[3:8]:
            await allocator.release(one)
        served = await asyncio.gather(*waiting)
        assert {one.sandbox.node_id for one in served} == {one.node_id for one in claimed[3:8]}
        assert not await mesh.store.hash("queue_nodes")


async def _polled(mesh: Mesh, waiting: int, claims: int) -> bool:
    return len(await mesh.store.hash("queue_wants")) == waiting and mesh.store.round_trips["claim"] >= claims


async def test_who_waits_for_the_whole_mesh_looks_at_no_further_nodes(mesh: Mesh) -> None:
    drivers = {node.node_id: node for node in simulated(COUNT)}
    async with mesh.over(drivers, capacity=3) as allocator:
        held = [(await allocator.claim(f"s{number}")).sandbox for number in range(3)]
        waiting = asyncio.create_task(allocator.claim("waits", timeout=60))
        await until(lambda: _polled(mesh, 1, 0))
        [want] = [json.loads(want) for want in (await mesh.store.hash("queue_wants")).values()]
        assert len(want["nodes"]) == DRAWN
        await allocator.release(held[0])
        assert (await waiting).sandbox.node_id in drivers


class Counted(SimulatedNode):
    """A node that counts its requests."""

    requests = 0

    async def get_info(self, request: driver_pb2.GetInfoRequest) -> driver_pb2.GetInfoResponse:
        self.requests += 1
        return await super().get_info(request)


async def test_the_health_of_each_of_many_nodes_is_read_again_and_again(mesh: Mesh) -> None:
    nodes = [Counted(f"node-{number}", Behaviour(delay=0)) for number in range(COUNT)]
    async with mesh.over({node.node_id: node for node in nodes}, health_seconds=0.05):
        before = [node.requests for node in nodes]

        async def two_of_each() -> bool:
            return all(node.requests >= first + 2 for node, first in zip(nodes, before, strict=True))

        await until(two_of_each)
