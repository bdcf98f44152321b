"""The real services over many simulated nodes: what a claim costs does not grow with sandboxes."""

from __future__ import annotations

import secrets
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.fleet.__main__ import arguments, figures
from benchmarks.fleet.measure import growth
from benchmarks.fleet.nodes import Behaviour
from benchmarks.fleet.world import HEADROOM, Fleet, Shape, claim_many, open_fleet

AT_ONCE = 24


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix=f"fleet-{secrets.token_hex(2)}", dir="/tmp") as made:
        yield Path(made)


@pytest.mark.timeout(300)
async def test_2000_sandboxes_on_50_nodes_cost_each_claim_no_more_than_the_first(folder: Path) -> None:
    shape = Shape(50, 2_000, allocators=2, behaviour=Behaviour(delay=0.05, failures=0.01))
    async with open_fleet(shape, folder) as fleet:
        found = await growth(fleet, 200, AT_ONCE)
        assert found.empty is not None
        assert found.empty.refused == found.full.refused == 0
        assert found.full.alive > 1_800
        assert found.full.evicted == 2
        await assert_each_place_is_held_once(fleet)
        assert sum(node.failed for node in fleet.nodes) > 0
        held = [len(node.sandboxes) for node in fleet.nodes]
        assert min(held) > 0.5 * shape.sandboxes / shape.nodes
        assert max(held) <= round(HEADROOM * shape.sandboxes / shape.nodes)
    assert 4 <= found.empty.requests < 6
    assert found.full.requests < found.empty.requests * 1.25
    assert found.full.use.commands < found.empty.use.commands * 2
    assert found.store_bytes < 16 * 1024
    printed = "\n".join(f"{figure.what} {figure.measured}" for figure in figures(shape, found))
    assert "50 nodes, room for 2,000, allocators: 2" in printed


async def test_sandboxes_from_before_are_recovered_and_a_claim_beside_them_costs_no_more_under_a_cap(
    folder: Path,
) -> None:
    behaviour = Behaviour(delay=0.05)
    costs: dict[int, float] = {}
    for held in (20, 1_000):
        shape = Shape(20, 1_100, allocators=2, behaviour=behaviour, recovered=held, cost_per_day=10**6)
        (folder / str(held)).mkdir()
        async with open_fleet(shape, folder / str(held)) as fleet:
            found = await growth(fleet, 50, 8)
            assert found.empty is None
            assert found.full.alive == held
            assert found.full.refused == 0
            costs[held] = found.full.use.commands
            await assert_each_place_is_held_once(fleet)
    assert costs[1_000] < costs[20] * 1.5


async def test_allocators_in_processes_of_their_own_share_nodes_and_hand_out_no_place_twice(folder: Path) -> None:
    shape = Shape(10, 120, allocators=2, behaviour=Behaviour(delay=0.05), recovered=40, apart=True)
    async with open_fleet(shape, folder) as fleet:
        found = await growth(fleet, 60, AT_ONCE)
        assert found.full.alive == 40
        assert found.full.refused == 0
        assert 4 <= found.full.requests < 6
        assert found.full.use.services_cpu > 0
        await assert_each_place_is_held_once(fleet)
    assert "each a process" in figures(shape, found)[0].what


async def assert_each_place_is_held_once(fleet: Fleet) -> None:
    on_nodes = Counter(sandbox_id for node in fleet.nodes for sandbox_id in node.sandboxes)
    assert max(on_nodes.values()) == 1
    newest, errors = await claim_many(fleet, 20, AT_ONCE)
    assert not errors
    assert len({held.sandbox.sandbox_id for held in newest}) == 20
    assert not on_nodes.keys() & {held.sandbox.sandbox_id for held in newest}


def test_the_long_form_is_a_thousand_nodes_with_a_hundred_thousand_sandboxes() -> None:
    long = arguments(["--long"])
    assert (long.sizes[-1], long.allocators, long.recovered) == ("1000x100000", [1, 2, 4], True)
    assert arguments(["--sizes", "3x30", "--allocators", "2"]).allocators == [2]
