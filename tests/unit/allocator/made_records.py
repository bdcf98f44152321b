"""Records that are made without an allocator, many at a time, and the commands that the server ran."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.allocator.records.record_store import Claim, NodeWant, RecordStore, Want
from sandmeshd.store import Store
from tests.unit.store.waiting import commands

HOUR_US = 3_600_000_000
MOST = 100_000


def claim_of(name: str, ttl_us: int = HOUR_US) -> Claim:
    """Return a claim of a session with that name."""
    node = NodeWant("node-1", "process", MOST, 0, 0)
    want = Want("base", "key", 0, MOST, 0, [node], caller="ada")
    return Claim(name, "box", f"t-{name}", f"sb_{name}", ttl_us, pb.SandboxSpec(template="base"), want)


async def make_ready(store: Store, name: str, count: int, *, price: int = 0, ttl_us: int = HOUR_US) -> None:
    """Make so many records of sandboxes that are READY and leased."""
    records = RecordStore(store, 10_000_000)
    for number in range(count):
        made = claim_of(f"{name}{number}", ttl_us)
        assert (await records.claim(made, "")).kind == "create"
        assert await records.started(made.sandbox_id)
        assert (await records.ready(made.sandbox_id, driver_pb2.RuntimeSandbox(nano_price=price)))[0]


async def make_pooled(store: Store, count: int, *, price: int = 0) -> None:
    """Make so many records of sandboxes of a pool."""
    records = RecordStore(store, 10_000_000)
    for number in range(count):
        made = claim_of(f"pool{number}")
        assert await records.fill(made.sandbox_id, made.spec, made.want, count)
        assert await records.started(made.sandbox_id)
        assert (await records.ready(made.sandbox_id, driver_pb2.RuntimeSandbox(nano_price=price)))[0]


async def commands_run(store: Store) -> int:
    """Return how many commands the server has run, those inside of scripts included."""
    stats: dict[str, dict[str, int]] = await commands(store).info("commandstats")
    return sum(command["calls"] for command in stats.values())
