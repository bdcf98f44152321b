"""When an allocator makes its rounds."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sandmeshd.allocator import rounds as module
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.rounds import Rounds, turns
from sandmeshd.runtime.beat import until_beat
from tests.unit.allocator.conftest import Mesh
from tests.unit.store.waiting import until


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the times of rounds short."""
    monkeypatch.setattr(module, "USE_SECONDS", 0.05)
    monkeypatch.setattr(module, "_WAKE_SECONDS", 0.1)


async def test_what_has_one_period_is_due_at_one_moment_whenever_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    due: set[float] = set()
    for began in (100.01, 100.05, 100.0999):
        with monkeypatch.context() as context:
            context.setattr(loop, "time", lambda: began)  # noqa: B023 - called in this turn alone
            due.add(round(began + until_beat(0.2), 6))
    assert due == {100.2}


@pytest.mark.parametrize("count", [0, 1, 16, 17, 1000])
def test_of_many_a_few_are_asked_at_one_moment_and_all_within_half_a_round(count: int) -> None:
    found = turns(count, 2.0)
    assert len(found) == count
    assert max(Counter(found).values(), default=0) == min(count, 16)
    assert all(0.0 <= one < 1.0 for one in found)
    assert set(found[:16]) <= {0.0}
    assert found == sorted(found)


@pytest.mark.parametrize("period", [0.05, 0.25, 1.0, 2.0])
async def test_a_wait_for_a_beat_is_half_to_one_and_a_half_of_its_period(period: float) -> None:
    for _ in range(20):
        assert period / 2 <= until_beat(period) <= period * 1.5
        await asyncio.sleep(0.003)


@pytest.mark.usefixtures("brief")
async def test_rounds_are_rarer_at_rest_and_never_rarer_than_every_six_seconds() -> None:
    rounds = Rounds()
    assert rounds.seconds(1.0) <= 1.5
    await asyncio.sleep(0.06)
    assert 2.0 <= rounds.seconds(1.0) <= 6.0
    assert 2.0 <= rounds.seconds(2.0) <= 6.0
    assert rounds.seconds(30.0) >= 15.0, "what is rare anyway is not made more frequent"
    rounds.use()
    assert rounds.seconds(1.0) <= 1.5


@pytest.mark.usefixtures("brief")
async def test_what_rests_begins_again_with_the_beat_after_a_use() -> None:
    rounds = Rounds()
    await asyncio.sleep(0.06)
    waiting = [asyncio.create_task(rounds.wait(1.0)) for _ in range(3)]
    await asyncio.sleep(0.01)
    rounds.use()
    assert not any(task.done() for task in waiting), "nobody who asks waits for what is done regularly"
    async with asyncio.timeout(1.0):
        await asyncio.gather(*waiting)


@pytest.mark.usefixtures("brief")
async def test_what_is_due_sooner_is_not_kept_waiting_by_rest() -> None:
    rounds = Rounds()
    await asyncio.sleep(0.06)
    async with asyncio.timeout(1.0):
        await rounds.wait(0.5, most=0.2)
    assert rounds.seconds(0.5) > 0.9


async def test_a_step_that_fails_is_tried_again_and_goes_on() -> None:
    tasks, taken = BackgroundTasks(), list[int]()

    async def step() -> None:
        taken.append(len(taken))
        if len(taken) == 2:
            raise RuntimeError("once")

    tasks.regularly("a step", 0.02, step)
    await until(lambda: len(taken) >= 5, seconds=5)
    await tasks.finish(0.0)


async def test_at_rest_a_lease_ends_when_it_ends_though_nothing_is_asked(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "USE_SECONDS", 0.1)
    monkeypatch.setattr(module, "REST_SECONDS", 60.0)
    monkeypatch.setattr(module, "_REST", 1200)
    loop = asyncio.get_running_loop()
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one", ttl=1.5)).sandbox
        began = loop.time()
        await until(lambda: sandbox.sandbox_id in mesh.runtime.deleted)
        assert loop.time() - began >= 1.0
