"""What a create's time went to, by phases."""

from __future__ import annotations

import asyncio

from sandmeshd.runtime.telemetry.phases import add_phases, current_phases, measured, phase, recorded_phases


async def test_phases_within_another_count_there_alone_those_of_tasks_and_of_other_processes_too() -> None:
    async def pull() -> None:
        with phase("pull", image="debian:12"):
            await asyncio.sleep(0.05)

    with recorded_phases() as phases:
        with measured("place"), recorded_phases() as same:
            assert same is phases
        with measured("start"):
            await asyncio.create_task(pull())
            add_phases({"pull": 100.0})
        taken = dict(current_phases())
    assert list(taken) == ["place", "start", "pull"]
    assert taken["pull"] > 100.0
    assert 0 <= taken["start"] < 0.05


async def test_nothing_is_measured_outside_of_a_create() -> None:
    with measured("start"), phase("pull"):
        add_phases({"pull": 1.0})
    assert current_phases() == {}
