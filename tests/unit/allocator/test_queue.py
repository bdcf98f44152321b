"""A full mesh: caps that hold, and a queue that is in order and leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import PoolExhausted
from tests.unit.allocator.conftest import Allocator, Mesh
from tests.unit.store.waiting import until

_QUEUE_KEYS = ("queue", "queue_seen", "queue_wants")


async def _queued(mesh: Mesh, count: int) -> None:
    async def reached() -> bool:
        return len(await mesh.store.hash("queue_wants")) == count

    await until(reached)


async def _queue_keys(mesh: Mesh) -> list[str]:
    return [key for key in await mesh.store.keys() if key.rpartition(":")[2] in _QUEUE_KEYS]


async def test_two_allocators_never_pass_the_cap_nor_give_a_sandbox_or_port_twice(mesh: Mesh) -> None:
    async with mesh.allocator("a", capacity=50) as a, mesh.allocator("b", capacity=50) as b:
        held: dict[str, list[int]] = {}
        most = 0

        async def use(number: int) -> str:
            nonlocal most
            allocator = (a, b)[number % 2]
            sandbox = (await allocator.claim(f"s{number}", ports=2, timeout=60)).sandbox
            assert sandbox.sandbox_id not in held
            assert not {port for ports in held.values() for port in ports} & set(sandbox.ports)
            held[sandbox.sandbox_id] = list(sandbox.ports)
            most = max(most, len(mesh.runtime.processes), len(held))
            await asyncio.sleep(0)
            del held[sandbox.sandbox_id]
            await allocator.release(sandbox)
            return sandbox.sandbox_id

        ids = await asyncio.gather(*(use(number) for number in range(200)))
        assert len(set(ids)) == 200
        assert most <= 50
        await a.until_used(0)
        assert mesh.runtime.processes == {}
        assert not await mesh.store.hash("ports", "node-1")
        assert await _queue_keys(mesh) == []


async def test_a_release_wakes_the_queue_in_order_across_allocators(mesh: Mesh) -> None:
    async with mesh.allocator("a", capacity=1) as a, mesh.allocator("b", capacity=1) as b:
        holder: tuple[Allocator, pb.Sandbox] = (a, (await a.claim("first")).sandbox)
        order: list[int] = []

        async def wait(number: int) -> tuple[Allocator, pb.Sandbox]:
            allocator = (a, b)[number % 2]
            sandbox = (await allocator.claim(f"s{number}")).sandbox
            order.append(number)
            return allocator, sandbox

        tasks: list[asyncio.Task[tuple[Allocator, pb.Sandbox]]] = []
        for number in range(6):
            tasks.append(asyncio.create_task(wait(number)))
            await _queued(mesh, number + 1)
        for task in tasks:
            await holder[0].release(holder[1])
            holder = await task
        assert order == list(range(6))


async def test_a_deadline_in_the_queue_says_how_full_it_is_and_leaves_nothing(mesh: Mesh) -> None:
    async with mesh.allocator(capacity=1) as allocator:
        held = await allocator.claim("first")
        with pytest.raises(PoolExhausted) as caught:
            await allocator.claim("second", timeout=2)
        assert caught.value.facts["used"] == "1"
        assert caught.value.facts["limit"] == "1"
        assert caught.value.facts["next_expire"] == held.sandbox.lease.expire_time.ToJsonString()
        assert caught.value.retryable
        assert await _queue_keys(mesh) == []
        assert [s.session_key for s in (await allocator.list()).sandboxes] == ["first"]


async def test_a_caller_that_goes_away_leaves_the_queue_and_the_next_one_is_served(mesh: Mesh) -> None:
    async with mesh.allocator(capacity=1) as allocator:
        held = (await allocator.claim("first")).sandbox
        gone = asyncio.create_task(allocator.claim("gone"))
        await _queued(mesh, 1)
        next_one = asyncio.create_task(allocator.claim("next"))
        await _queued(mesh, 2)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await _queued(mesh, 1)
        await allocator.release(held)
        assert (await next_one).sandbox.session_key == "next"
        assert {s.session_key for s in (await allocator.list()).sandboxes} <= {"first", "next"}


async def test_a_template_s_cap_holds_back_only_its_own(mesh: Mesh) -> None:
    async with mesh.allocator(capacity=10, template_capacities={"base": 1}) as allocator:
        held = (await allocator.claim("one")).sandbox
        waiting = asyncio.create_task(allocator.claim("two"))
        await _queued(mesh, 1)
        assert (await allocator.claim("three", "other")).claimed
        await allocator.release(held)
        assert (await waiting).claimed


async def test_ports_that_run_out_queue_the_request(mesh: Mesh) -> None:
    mesh.runtime.ports = (20000, 20003)
    async with mesh.allocator() as allocator:
        held = (await allocator.claim("one", ports=3)).sandbox
        waiting = asyncio.create_task(allocator.claim("two", ports=2))
        await _queued(mesh, 1)
        await allocator.release(held)
        ports = set((await waiting).sandbox.ports)
        assert len(ports) == 2
        assert ports <= {20000, 20001, 20002, 20003}


async def test_a_kept_sandbox_is_given_back_to_its_session_in_a_full_mesh(mesh: Mesh) -> None:
    async with mesh.allocator(capacity=1) as allocator:
        first = await allocator.claim("one")
        again = await allocator.claim("one", timeout=20)
        assert again.sandbox.sandbox_id == first.sandbox.sandbox_id


async def test_an_unused_sandbox_of_another_kind_makes_room_in_a_full_mesh(mesh: Mesh) -> None:
    async with mesh.allocator(capacity=2, pools={"other": 2}) as allocator:
        await allocator.until_pooled("other", 2)
        answer = await allocator.claim("one", "base", timeout=10)
        assert answer.claimed
        assert (await allocator.capacity()).used <= 2
