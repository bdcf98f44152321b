"""kill -9 of everything at random while clients create, call and release."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.faults.campaign import Plan, run_round
from tests.faults.world import Shape

SEEDS = {"external": 1, "embedded": 2}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["external", "embedded"])
async def test_kills_at_random_lose_nothing_and_leave_nothing(
    tmp_path: Path, store: Literal["external", "embedded"]
) -> None:
    shape = Shape(services=2, nodes=2, store=store)
    plan = Plan(shape, cycles=100_000, seconds=15.0, seed=SEEDS[store], pause=(0.3, 1.5), away=(0.5, 3.0), after=4.0)
    outcome = await run_round(plan, tmp_path)
    assert not outcome.wrong_output
    assert not outcome.undocumented
    assert not outcome.handed_out_twice
    assert not outcome.logged_errors
    assert not outcome.failures_in_the_clear, outcome
    assert not outcome.left, "\n".join(outcome.left)
