"""Caps of users, the order of the queue among them, and what a full mesh says."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import PoolExhausted
from sandmeshd.store import StoreSettings, open_store
from tests.unit.allocator.conftest import Allocator, Mesh
from tests.unit.allocator.process_driver import ProcessDriver
from tests.unit.store.waiting import until


async def test_one_user_s_cap_holds_and_does_not_hold_up_others(mesh: Mesh) -> None:
    async with mesh.allocator("a", caller_capacity=2) as a, mesh.allocator("b", caller_capacity=2) as b:
        mine = [(await a.claim(f"m{number}", user="me")).sandbox for number in range(2)]
        waiting = asyncio.create_task(b.claim("m3", user="me"))
        await _until_queued(mesh, 1)
        assert (await a.claim("y", user="you")).claimed
        await a.release(mine[0])
        assert (await waiting).claimed


async def test_a_pool_s_sandbox_counts_against_its_taker_s_cap(mesh: Mesh) -> None:
    async with mesh.allocator(pools={"base": 2}, caller_capacity=1) as allocator:
        await allocator.until_pooled("base", 2)
        assert (await allocator.claim("one", user="me")).pooled
        with pytest.raises(PoolExhausted) as caught:
            await allocator.claim("two", user="me", timeout=2)
        assert (caught.value.facts["bound"], caught.value.facts["limit"]) == ("caller", "1")


async def test_users_are_served_in_turn_and_each_one_s_requests_in_order(mesh: Mesh) -> None:
    async with mesh.allocator("a", capacity=1) as a, mesh.allocator("b", capacity=1) as b:
        holder = (await a.claim("first", user="x")).sandbox
        served: list[str] = []

        async def wait(name: str) -> None:
            allocator = (a, b)[int(name[1]) % 2]
            sandbox = (await allocator.claim(name, user=name[0], timeout=30)).sandbox
            served.append(name)
            await allocator.release(sandbox)

        tasks: list[asyncio.Task[None]] = []
        for count, name in enumerate(("g1", "g2", "g3", "h1", "h2", "k1"), 1):
            tasks.append(asyncio.create_task(wait(name)))
            await _until_queued(mesh, count)
        await a.release(holder)
        await asyncio.gather(*tasks)
        assert served == ["g1", "h1", "k1", "g2", "h2", "g3"]


async def test_a_full_mesh_says_what_is_used_by_what_and_when_the_next_lease_ends(mesh: Mesh) -> None:
    async with mesh.allocator(capacity=3, template_capacities={"other": 1}) as allocator:
        await allocator.claim("one")
        await allocator.claim("two", "other")
        with pytest.raises(PoolExhausted) as caught:
            await allocator.claim("three", "other", timeout=2)
        assert caught.value.facts["bound"] == "template"
        await allocator.claim("four")
        with pytest.raises(PoolExhausted) as caught:
            await allocator.claim("five", timeout=2)
        facts = caught.value.facts
        assert (facts["bound"], facts["used"], facts["limit"]) == ("mesh", "3", "3")
        assert (facts["templates"], facts["nodes"]) == ("base=2, other=1", "node-1=3")
        assert facts["next_expire"]
        assert caught.value.retryable


async def _until_queued(mesh: Mesh, count: int) -> None:
    async def reached() -> bool:
        return len(await mesh.store.hash("queue_wants")) == count

    await until(reached)


class BookDriver(ProcessDriver):
    """A driver whose sandboxes are entries of a book: what is counted here is not what a process does."""

    most = 0

    async def create_sandbox(self, request: driver_pb2.CreateSandboxRequest) -> driver_pb2.CreateSandboxResponse:
        assert request.sandbox_id not in self.runtime.tokens
        self.runtime.tokens[request.sandbox_id] = request.fencing_token
        made = driver_pb2.RuntimeSandbox(sandbox_id=request.sandbox_id, record_labels=request.record_labels)
        self.runtime.sandboxes[request.sandbox_id] = made
        self.most = max(self.most, len(self.runtime.sandboxes))
        return driver_pb2.CreateSandboxResponse(sandbox=made)


async def test_a_thousand_claims_at_once_over_five_allocators_share_nothing_and_pass_no_cap(
    mesh: Mesh, tmp_path: Path
) -> None:
    most: dict[str, object] = {"capacity": 60, "node_capacity": 60, "caller_capacity": 12, "poll_seconds": 2}
    driver = BookDriver(mesh.runtime)
    # A machine that is busy with other things answers late, not wrongly.
    same = StoreSettings(
        mesh_id="m", directory=tmp_path / "data", socket=tmp_path / "run" / "s", command_timeout_seconds=30
    )
    async with AsyncExitStack() as stack:
        allocators: list[Allocator] = []
        for name in "abcde":
            own = replace(mesh, store=await stack.enter_async_context(open_store(same)))
            allocators.append(await stack.enter_async_context(own.over({"book": driver}, name, **most)))
        holding: Counter[str] = Counter()
        ports: set[int] = set()
        sandbox_ids: list[str] = []

        async def use(number: int) -> None:
            user, allocator = f"u{number % 10}", allocators[number % 5]
            sandbox = (await allocator.claim(f"s{number}", ports=1, user=user, timeout=110)).sandbox
            sandbox_ids.append(sandbox.sandbox_id)
            holding[user] += 1
            assert holding[user] <= 12
            assert holding.total() <= 60
            assert not ports & set(sandbox.ports)
            ports.update(sandbox.ports)
            await asyncio.sleep(0)
            ports.difference_update(sandbox.ports)
            holding[user] -= 1
            await allocator.release(sandbox)

        await asyncio.gather(*(use(number) for number in range(1000)))
        assert len(set(sandbox_ids)) == 1000
        assert driver.most <= 60
        await allocators[0].until_used(0)
        assert not mesh.runtime.sandboxes
        assert not await mesh.store.hash("ports", "node-1")
