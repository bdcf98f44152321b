"""Batches: they wait behind everybody else, take turns among jobs, and start few at a time."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, PoolExhausted
from sandmeshd.allocator.claims.pace import Pace
from tests.unit.allocator.conftest import Allocator, Mesh
from tests.unit.allocator.process_driver import ProcessDriver, Runtime
from tests.unit.store.waiting import until


async def test_a_batch_waits_behind_all_others_and_its_users_take_turns(mesh: Mesh) -> None:
    async with mesh.allocator("a", capacity=1) as a, mesh.allocator("b", capacity=1) as b:
        waiting = ["x1", "x2", "y1", "c1", "d1"]
        served = await _order(mesh, (a, b), waiting, {"x": pb.Batch(), "y": pb.Batch()})
        assert served == ["c1", "d1", "x1", "y1", "x2"]


async def test_jobs_of_a_user_take_turns_by_their_shares(mesh: Mesh) -> None:
    async with mesh.allocator(capacity=1) as allocator:
        batches = {"s": pb.Batch(job="small"), "l": pb.Batch(job="large", share=3)}
        waiting = ["s1", "s2", "s3", "l1", "l2", "l3", "l4"]
        served = await _order(mesh, (allocator,), waiting, batches, user="trainer")
        assert served == ["s1", "l1", "l2", "l3", "s2", "l4", "s3"]


async def _order(
    mesh: Mesh, allocators: tuple[Allocator, ...], names: list[str], batches: dict[str, pb.Batch], user: str = ""
) -> list[str]:
    """Return in which order those are served that wait in a full mesh, each until it is released."""
    holder = (await allocators[0].claim("first", user="z")).sandbox
    served: list[str] = []

    async def wait(number: int, name: str) -> None:
        allocator = allocators[number % len(allocators)]
        claim = await allocator.claim(name, user=user or name[0], timeout=60, batch=batches.get(name[0]))
        served.append(name)
        await allocator.release(claim.sandbox)

    tasks: list[asyncio.Task[None]] = []
    for number, name in enumerate(names):
        tasks.append(asyncio.create_task(wait(number, name)))
        await _until_queued(mesh, number + 1)
    await allocators[0].release(holder)
    await asyncio.gather(*tasks)
    return served


class GatedDriver(ProcessDriver):
    """A driver whose creates of batches wait for a gate."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.gate = asyncio.Event()
        self.waiting = self.most = 0

    async def create_sandbox(self, request: driver_pb2.CreateSandboxRequest) -> driver_pb2.CreateSandboxResponse:
        if request.spec.labels["gated"]:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            await self.gate.wait()
            self.waiting -= 1
        return await super().create_sandbox(request)


async def test_few_of_a_batch_start_at_once_on_a_node_and_others_beside_them(mesh: Mesh) -> None:
    driver = GatedDriver(mesh.runtime)
    async with mesh.over({"process": driver}, batch_starts=2) as allocator:
        spec = pb.SandboxSpec(template="base", labels={"gated": "yes"})
        claims = [
            asyncio.create_task(allocator.claim(f"b{number}", spec=spec, batch=pb.Batch(), timeout=60))
            for number in range(6)
        ]
        await _until_queued(mesh, 4)
        assert (await allocator.claim("caller")).claimed
        with pytest.raises(PoolExhausted) as caught:
            await allocator.claim("late", spec=spec, batch=pb.Batch(), timeout=2)
        assert caught.value.facts["bound"] == "starts"
        assert "batches" in caught.value.message
        driver.gate.set()
        assert all(claim.claimed for claim in await asyncio.gather(*claims))
        assert driver.most == 2
        assert await mesh.store.hash("batch_starts") == {}


async def test_a_batch_leaves_the_pool_to_others_until_there_is_no_other_room(mesh: Mesh) -> None:
    async with mesh.allocator(capacity=3, pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        first = await allocator.claim("b1", batch=pb.Batch())
        second = await allocator.claim("b2", batch=pb.Batch())
        assert not first.pooled
        assert not second.pooled
        assert (await allocator.claim("b3", batch=pb.Batch())).pooled


async def test_a_pool_is_refilled_while_a_batch_waits_for_its_turn_to_start(mesh: Mesh) -> None:
    driver = GatedDriver(mesh.runtime)
    async with mesh.over({"process": driver}, batch_starts=1, pools={"base": 1}) as allocator:
        await allocator.until_pooled("base", 1)
        spec = pb.SandboxSpec(template="base", labels={"gated": "yes"})
        claims = [
            asyncio.create_task(allocator.claim(f"b{number}", spec=spec, batch=pb.Batch(), timeout=60))
            for number in range(3)
        ]
        await _until_queued(mesh, 2)
        assert (await allocator.claim("caller")).pooled
        await allocator.until_pooled("base", 1)
        driver.gate.set()
        await asyncio.gather(*claims)


async def test_a_batch_s_request_that_goes_away_gives_its_start_to_the_next(mesh: Mesh) -> None:
    driver = GatedDriver(mesh.runtime)
    async with mesh.over({"process": driver}, batch_starts=1) as allocator:
        spec = pb.SandboxSpec(template="base", labels={"gated": "yes"})
        gone = asyncio.create_task(allocator.claim("gone", spec=spec, batch=pb.Batch(), timeout=60))
        await until(lambda: _is(driver.waiting == 1))
        rest = asyncio.create_task(allocator.claim("next", "other", batch=pb.Batch(), timeout=60))
        await _until_queued(mesh, 1)
        gone.cancel()
        assert (await rest).claimed


async def test_a_share_out_of_range_is_refused(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        with pytest.raises(InvalidArgument, match=r"batch\.share is at most 100"):
            await allocator.claim("one", batch=pb.Batch(share=101))


async def _is(condition: bool) -> bool:
    return condition


async def _until_queued(mesh: Mesh, count: int) -> None:
    async def reached() -> bool:
        return len(await mesh.store.hash("queue_wants")) == count

    await until(reached)


async def test_a_batch_starts_between_the_creates_of_others_and_one_at_a_time() -> None:
    pace, running, gate = Pace(), list[str](), asyncio.Event()

    async def start(name: str) -> None:
        async with pace.batch_start():
            running.append(name)
            await gate.wait()

    with pace.create():
        first = asyncio.create_task(start("first"))
        await asyncio.sleep(0)
        assert running == []
    await until(lambda: _is(running == ["first"]))
    second = asyncio.create_task(start("second"))
    await asyncio.sleep(0)
    assert running == ["first"]
    gate.set()
    await asyncio.gather(first, second)
    assert running == ["first", "second"]


async def test_a_batch_does_not_wait_for_creates_that_follow_each_other_for_ever() -> None:
    pace = Pace()
    with pace.create():
        async with asyncio.timeout(60), pace.batch_start():
            pass


async def test_batches_by_themselves_are_not_paced() -> None:
    pace = Pace()
    async with pace.batch_start(), asyncio.timeout(60), pace.batch_start():
        pass
