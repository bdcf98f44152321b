"""Usage of projects and sandboxes: what the store counts, whoever crashes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.quota.v1 import quota_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, SandboxStartFailed
from sandmeshd.allocator.maintenance.usage import UsageMeter
from sandmeshd.allocator.metered_records import update_usage
from sandmeshd.runtime.telemetry.metrics import Observed, UsageGauges
from sandmeshd.store import Store
from sandmeshd.tenants.quotas import QuotaRecords
from sandmeshd.tenants.usage import UsageRecords
from tests.unit.allocator.conftest import Allocator, Mesh
from tests.unit.allocator.process_driver import ProcessDriver, start_failure
from tests.unit.store.waiting import commands, until

MEMORY, CPU = 2**20, 1500
SEED = 20261


def spec() -> pb.SandboxSpec:
    return pb.SandboxSpec(template="base", limits=pb.Limits(memory_bytes=MEMORY, cpu_millis=CPU))


async def usage_of(store: Store, **fields: object) -> quota_pb2.ListUsageResponse:
    return await UsageRecords(store).list(quota_pb2.ListUsageRequest(limit=1000, **fields))  # type: ignore[arg-type]  # by name


async def held_by_events(store: Store) -> dict[str, float]:
    """Return the seconds between each sandbox's lease and its end, by the events of the store, on the store's clock."""
    begins: dict[str, int] = {}
    held: dict[str, float] = defaultdict(float)
    for entry_id, fields in await commands(store).xrange(store.key("events")):
        words = {name.decode(): value.decode() for name, value in fields.items()}
        sandbox_id, when = words["sandbox"], int(entry_id.split(b"-")[0])
        if words["kind"] == "leased":
            begins[sandbox_id] = when
        elif words["kind"] in ("stopping", "lost") and sandbox_id in begins:
            held[sandbox_id] += (when - begins.pop(sandbox_id)) / 1000
    assert not begins, "each sandbox was to end"
    return held


async def storm(mesh: Mesh, allocator: Allocator, chance: random.Random, living: dict[str, pb.Sandbox]) -> None:
    """Claim, release and kill at random."""
    for number in range(12):
        session = f"s{chance.randrange(10**9)}"
        made = (await allocator.claim(session, user=f"u{number % 3}", spec=spec())).sandbox
        living[made.sandbox_id] = made
        await allocator.until_state(made.sandbox_id, pb.SANDBOX_STATE_READY)
        victim = chance.choice(list(living))
        if chance.random() < 0.4 and mesh.runtime.processes[victim].returncode is None:
            await mesh.runtime.kill(victim)
        elif chance.random() < 0.5:
            await allocator.release(living.pop(victim))


async def test_usage_adds_up_after_a_storm_of_kills_of_sandboxes_and_allocators(mesh: Mesh) -> None:
    chance = random.Random(SEED)  # noqa: S311 - a seeded storm
    await QuotaRecords(mesh.store).assign("u1", "research")
    living: dict[str, pb.Sandbox] = {}
    for number in range(4):
        # Each allocator ends with sandboxes of its own in use, and another goes on.
        async with mesh.allocator(f"a{number}", pools={"base": 1}, usage_seconds=0.05, capacity=200) as allocator:
            await storm(mesh, allocator, chance, living)
    async with mesh.allocator("last", usage_seconds=0.05, capacity=200) as allocator:
        for sandbox in living.values():
            await allocator.release(sandbox)
        assert not await commands(mesh.store).smembers(mesh.store.key("metered"))
    held, counted = await held_by_events(mesh.store), await usage_of(mesh.store)
    assert len(held) == 48
    assert {one.sandbox_id for one in counted.sandboxes} == set(held)
    total = sum(held.values())
    for one in counted.sandboxes:
        # Events are numbered in milliseconds.
        assert one.sandbox_seconds == pytest.approx(held[one.sandbox_id], rel=0.01, abs=0.003)
        assert one.cpu_seconds == pytest.approx(one.sandbox_seconds * CPU / 1000, rel=0.01, abs=0.1)
    assert sum(one.sandbox_seconds for one in counted.projects) == pytest.approx(total, rel=0.01)
    for project in ("default", "research"):
        [sums] = [row for row in counted.projects if row.project == project]
        own = [row for row in counted.sandboxes if row.project == project]
        for measure in ("sandbox_seconds", "cpu_seconds", "memory_byte_seconds"):
            assert getattr(sums, measure) == pytest.approx(sum(getattr(one, measure) for one in own), rel=1e-9)
        assert sums.memory_byte_seconds == pytest.approx(sums.sandbox_seconds * MEMORY, rel=0.01)
    assert {one.user_id for one in counted.sandboxes if one.project == "research"} == {"u1"}


async def test_of_a_sandbox_that_ended_while_nobody_was_there_a_minute_is_counted_at_most(mesh: Mesh) -> None:
    async with mesh.allocator("a") as allocator:
        sandbox = (await allocator.claim("one", ttl=3600)).sandbox
    record = mesh.store.key("sandbox", sandbox.sandbox_id)
    # As if the machine had been away for an hour.
    before = int(await commands(mesh.store).hget(record, "metered_us") or 0)
    await commands(mesh.store).hset(record, "metered_us", before - 3_600_000_000)
    await mesh.runtime.kill(sandbox.sandbox_id)
    async with mesh.allocator("b") as allocator:
        await allocator.until_state(sandbox.sandbox_id, pb.SANDBOX_STATE_LOST)
        [counted] = (await usage_of(mesh.store, sandbox_id=sandbox.sandbox_id)).sandboxes
    assert counted.sandbox_seconds == 60


async def test_a_sandbox_that_lived_on_without_an_allocator_is_counted_in_full(mesh: Mesh) -> None:
    async with mesh.allocator("a") as allocator:
        sandbox = (await allocator.claim("one", ttl=7200)).sandbox
    record = mesh.store.key("sandbox", sandbox.sandbox_id)
    before = int(await commands(mesh.store).hget(record, "metered_us") or 0)
    await commands(mesh.store).hset(record, "metered_us", before - 3_600_000_000)
    async with mesh.allocator("b"):
        [counted] = (await usage_of(mesh.store, sandbox_id=sandbox.sandbox_id)).sandboxes
    assert 3600 <= counted.sandbox_seconds < 3700


async def test_a_clock_that_was_set_back_takes_nothing_away(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one")).sandbox
        record = mesh.store.key("sandbox", sandbox.sandbox_id)
        ahead = int(await commands(mesh.store).hget(record, "metered_us") or 0) + 3_600_000_000
        await commands(mesh.store).hset(record, "metered_us", ahead)
        counted = await usage_of(mesh.store)
        assert all(one.sandbox_seconds < 60 for one in (*counted.sandboxes, *counted.projects))
        assert int(await commands(mesh.store).hget(record, "metered_us") or 0) < ahead


async def test_sandboxes_of_pools_count_from_when_they_are_claimed_and_a_failed_start_not_at_all(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        assert not (await usage_of(mesh.store)).sandboxes
        sandbox = (await allocator.claim("one", user="ada")).sandbox
        assert await commands(mesh.store).smembers(mesh.store.key("metered")) == {sandbox.sandbox_id.encode()}
        [counted] = (await usage_of(mesh.store, sandbox_id=sandbox.sandbox_id)).sandboxes
        assert (counted.user_id, counted.template, counted.project) == ("ada", "base", "default")
    async with mesh.allocator("other", create_attempts=1) as allocator:
        mesh.runtime.failures.append(start_failure())
        with pytest.raises(SandboxStartFailed):
            await allocator.claim("two")
    assert await commands(mesh.store).scard(mesh.store.key("metered")) == 1


class CountingDriver(ProcessDriver):
    """A driver with an egress proxy's counts."""

    totals: Mapping[str, int] = {}

    async def list_sandboxes(self, request: driver_pb2.ListSandboxesRequest) -> driver_pb2.ListSandboxesResponse:
        listed = await super().list_sandboxes(request)
        listed.egress_bytes.update(self.totals)
        return listed

    async def delete_sandbox(self, request: driver_pb2.DeleteSandboxRequest) -> driver_pb2.DeleteSandboxResponse:
        deleted = await super().delete_sandbox(request)
        deleted.egress_bytes = self.totals.get(request.sandbox_id, 0)
        return deleted


async def test_egress_is_counted_once_also_over_a_restart_of_the_driver_and_what_came_last(mesh: Mesh) -> None:
    driver = CountingDriver(mesh.runtime)

    async def counted(sandbox_id: str) -> int:
        rows = (await usage_of(mesh.store, sandbox_id=sandbox_id)).sandboxes
        return rows[0].egress_bytes if rows else 0

    async def reached(sandbox_id: str, total: int) -> bool:
        return await counted(sandbox_id) == total

    async with mesh.over({"process": driver}, usage_seconds=0.02) as allocator:
        sandbox = (await allocator.claim("one")).sandbox
        driver.totals = {sandbox.sandbox_id: 1000}
        await until(lambda: reached(sandbox.sandbox_id, 1000))
        driver.totals = {sandbox.sandbox_id: 1500}
        await until(lambda: reached(sandbox.sandbox_id, 1500))
        # It began anew: 200 more.
        driver.totals = {sandbox.sandbox_id: 200}
        await until(lambda: reached(sandbox.sandbox_id, 1700))
    async with mesh.over({"process": driver}, "b", usage_seconds=60) as allocator:
        driver.totals = {sandbox.sandbox_id: 250}
        await allocator.release(sandbox)
        await allocator.until_used(0)
        assert await counted(sandbox.sandbox_id) == 1750
        [project] = (await usage_of(mesh.store)).projects
        assert project.egress_bytes == 1750


async def test_usage_is_filtered_by_day_and_project_and_shown_as_metrics(mesh: Mesh) -> None:
    await QuotaRecords(mesh.store).assign("ada", "research")
    async with mesh.allocator() as allocator:
        for user in ("ada", "bob"):
            await allocator.claim(user, user=user, spec=spec())
        everything = await usage_of(mesh.store)
        assert [project.project for project in everything.projects] == ["default", "research"]
        assert [sandbox.project for sandbox in (await usage_of(mesh.store, project="research")).sandboxes] == [
            "research"
        ]
        today, tomorrow = Timestamp(), Timestamp()
        today.GetCurrentTime()
        tomorrow.FromSeconds(today.seconds + 2 * 86400)
        assert len((await usage_of(mesh.store, since=today)).projects) == 2
        later = await usage_of(mesh.store, since=tomorrow)
        assert not later.projects
        assert not later.sandboxes
        observed = Observed()
        gauges = UsageGauges(observed.registry)
        await update_usage(gauges, UsageMeter(mesh.store, None, ""))  # type: ignore[arg-type]  # it counts nothing here
        assert b'sandmesh_usage_sandbox_seconds{project="research"}' in await observed.text()


async def test_a_limit_beyond_the_largest_and_a_time_before_1970_are_refused(mesh: Mesh) -> None:
    for request, match in (
        (quota_pb2.ListUsageRequest(limit=1001), "at most 1000"),
        (quota_pb2.ListUsageRequest(since=Timestamp(seconds=-1)), "after 1970"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            await UsageRecords(mesh.store).list(request)
