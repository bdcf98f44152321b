"""Quotas of projects and users: kept by the claim, whoever claims."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from sandmesh.api.quota.v1 import quota_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, QuotaExceeded
from sandmeshd.tenants.quotas import QuotaRecords
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.invariants import check, dump
from tests.unit.store.waiting import commands, until

GIB = 2**30


def small(memory: int = GIB, cpu: int = 500) -> pb.SandboxSpec:
    return pb.SandboxSpec(template="base", limits=pb.Limits(memory_bytes=memory, cpu_millis=cpu))


async def quota_of(mesh: Mesh, name: str) -> quota_pb2.Quota:
    return next(quota for quota in await QuotaRecords(mesh.store).all() if name in (quota.project, quota.user_id))


async def test_200_creates_at_once_by_five_allocators_make_as_many_sandboxes_as_the_quota_allows(mesh: Mesh) -> None:
    quotas = QuotaRecords(mesh.store)
    await quotas.set("project", "default", {"sandboxes": 10}, [])
    async with AsyncExitStack() as stack:
        five = [await stack.enter_async_context(mesh.allocator(name, capacity=500)) for name in "abcde"]
        answers = await asyncio.gather(
            *(five[n % 5].claim(f"s{n}", user=f"u{n % 7}") for n in range(200)), return_exceptions=True
        )
        made = [answer for answer in answers if isinstance(answer, pb.ClaimSandboxResponse)]
        refused = [answer for answer in answers if isinstance(answer, QuotaExceeded)]
        assert (len(made), len(refused)) == (10, 190)
        facts = {
            "quota": "sandboxes",
            "of": "project",
            "name": "default",
            "used": "10",
            "requested": "1",
            "limit": "10",
        }
        assert refused[-1].facts == facts
        assert (await quota_of(mesh, "default")).use.sandboxes == 10
        check(await dump(mesh.store), None)


async def test_memory_and_processors_in_use_are_the_sums_of_limits(mesh: Mesh) -> None:
    quotas = QuotaRecords(mesh.store)
    await quotas.set("caller", "ada", {"memory_bytes": 3 * GIB, "cpu_millis": 1200}, [])
    async with mesh.allocator() as allocator:
        first = (await allocator.claim("one", user="ada", spec=small(GIB, 500))).sandbox
        await allocator.claim("two", user="ada", spec=small(GIB, 500))
        with pytest.raises(QuotaExceeded) as caught:
            await allocator.claim("three", user="ada", spec=small(GIB, 500))
        assert (caught.value.facts["quota"], caught.value.facts["used"]) == ("cpu_millis", "1000")
        with pytest.raises(QuotaExceeded, match=r"memory_bytes of the user ada is reached"):
            await allocator.claim("three", user="ada", spec=small(2 * GIB, 100))
        assert (await allocator.claim("other", user="bob", spec=small())).claimed
        await allocator.release(first)
        assert (await allocator.claim("three", user="ada", spec=small(2 * GIB, 100))).claimed
        use = (await quota_of(mesh, "ada")).use
        assert (use.sandboxes, use.memory_bytes, use.cpu_millis) == (2, 3 * GIB, 600)


async def test_paused_sandboxes_have_a_quota_of_theirs(mesh: Mesh) -> None:
    quotas = QuotaRecords(mesh.store)
    await quotas.set("caller", "ada", {"sandboxes": 1}, [])
    async with mesh.allocator() as allocator:
        first = (await allocator.claim("one", user="ada")).sandbox
        await allocator.pause(first, first.lease.fencing_token)
        with pytest.raises(QuotaExceeded, match="the quota sandboxes of the user ada is reached"):
            await allocator.claim("two", user="ada")
        await quotas.set("caller", "ada", {"paused_sandboxes": 1}, [])
        second = (await allocator.claim("two", user="ada")).sandbox
        use = (await quota_of(mesh, "ada")).use
        assert (use.sandboxes, use.paused_sandboxes) == (1, 1)
        with pytest.raises(QuotaExceeded) as caught:
            await allocator.pause(second, second.lease.fencing_token)
        assert (caught.value.facts["quota"], caught.value.facts["used"]) == ("paused_sandboxes", "1")
        with pytest.raises(QuotaExceeded) as caught:
            await allocator.resume(first, first.lease.fencing_token)
        assert caught.value.facts["quota"] == "sandboxes"
        states = [(await allocator.get(one.sandbox_id)).state for one in (first, second)]
        assert states == [pb.SANDBOX_STATE_PAUSED, pb.SANDBOX_STATE_READY]
        check(await dump(mesh.store), None)
        await allocator.release(second)
        await until(lambda: _has_room(mesh))
        assert (await allocator.resume(first, first.lease.fencing_token)).state == pb.SANDBOX_STATE_READY
        use = (await quota_of(mesh, "ada")).use
        assert (use.sandboxes, use.paused_sandboxes) == (1, 0)


async def _has_room(mesh: Mesh) -> bool:
    return (await quota_of(mesh, "ada")).use.sandboxes == 0


async def test_a_sandbox_without_a_limit_is_refused_where_its_resource_is_counted(mesh: Mesh) -> None:
    await QuotaRecords(mesh.store).set("caller", "ada", {"memory_bytes": GIB}, [])
    async with mesh.allocator() as allocator:
        with pytest.raises(InvalidArgument, match="counts memory") as caught:
            await allocator.claim("one", user="ada")
        assert caught.value.facts["field"] == "spec.limits.memory_bytes"


async def test_creates_of_the_last_minute_are_counted_from_pools_too(mesh: Mesh) -> None:
    await QuotaRecords(mesh.store).set("caller", "ada", {"creates_per_minute": 2}, [])
    async with mesh.allocator(pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        for name in ("one", "two"):
            sandbox = (await allocator.claim(name, user="ada")).sandbox
            # A claim of what the session has is not a create.
            assert not (await allocator.claim(name, user="ada")).claimed
            await allocator.release(sandbox)
        with pytest.raises(QuotaExceeded, match="wait a minute"):
            await allocator.claim("three", user="ada")


async def test_a_clock_that_was_set_back_refuses_no_create_for_what_is_ahead_of_it(mesh: Mesh) -> None:
    await QuotaRecords(mesh.store).set("caller", "ada", {"creates_per_minute": 1}, [])
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one", user="ada")).sandbox
        with pytest.raises(QuotaExceeded, match="creates_per_minute"):
            await allocator.claim("two", user="ada")
        creates = mesh.store.key("creates", "caller", "ada")
        at = await commands(mesh.store).zscore(creates, sandbox.sandbox_id)
        await commands(mesh.store).zadd(creates, {sandbox.sandbox_id: at + 3_600_000_000})
        assert (await allocator.claim("two", user="ada")).claimed
        with pytest.raises(QuotaExceeded, match="creates_per_minute"):
            await allocator.claim("three", user="ada")


async def test_a_quota_below_what_is_in_use_ends_nothing_and_holds_from_then_on(mesh: Mesh) -> None:
    quotas = QuotaRecords(mesh.store)
    async with mesh.allocator() as allocator:
        held = [(await allocator.claim(f"s{n}", user="ada")).sandbox for n in range(3)]
        await quotas.set("caller", "ada", {"sandboxes": 1}, [])
        with pytest.raises(QuotaExceeded, match="3 of 1"):
            await allocator.claim("more", user="ada")
        assert [(await allocator.get(one.sandbox_id)).state for one in held] == [pb.SANDBOX_STATE_READY] * 3
        assert not (await allocator.claim("s0", user="ada")).claimed
        await quotas.set("caller", "ada", {}, ["sandboxes"])
        assert (await allocator.claim("more", user="ada")).claimed


async def test_a_claim_waits_for_a_sandbox_of_its_quota_that_is_being_deleted(mesh: Mesh) -> None:
    await QuotaRecords(mesh.store).set("caller", "ada", {"sandboxes": 1}, [])
    async with mesh.allocator() as allocator:
        for number in range(5):
            sandbox = (await allocator.claim(f"s{number}", user="ada")).sandbox
            await allocator.release(sandbox)
        await allocator.until_used(0)
        assert (await quota_of(mesh, "ada")).use == quota_pb2.QuotaUse()


async def test_the_users_of_a_project_share_its_quota(mesh: Mesh) -> None:
    quotas = QuotaRecords(mesh.store)
    await quotas.assign("ada", "research")
    await quotas.assign("bob", "research")
    await quotas.set("project", "research", {"sandboxes": 1}, [])
    async with mesh.allocator() as allocator:
        await allocator.claim("one", user="ada")
        with pytest.raises(QuotaExceeded, match="of the project research"):
            await allocator.claim("two", user="bob")
        assert (await allocator.claim("three", user="carol")).claimed
        assert list((await quota_of(mesh, "research")).user_ids) == ["ada", "bob"]
        # What bob has from now on counts elsewhere.
        await quotas.assign("bob", "default")
        assert (await allocator.claim("two", user="bob")).claimed
        assert (await quota_of(mesh, "default")).use.sandboxes == 2


async def test_a_user_over_the_quota_holds_up_nobody_in_the_queue(mesh: Mesh) -> None:
    await QuotaRecords(mesh.store).set("caller", "ada", {"sandboxes": 1}, [])
    async with mesh.allocator(capacity=2) as allocator:
        await allocator.claim("one", user="ada")
        other = (await allocator.claim("two", user="bob")).sandbox
        waiting = asyncio.create_task(allocator.claim("three", user="bob"))
        with pytest.raises(QuotaExceeded):
            await allocator.claim("four", user="ada")
        await allocator.release(other)
        assert (await waiting).claimed
