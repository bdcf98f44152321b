"""kill -9 of everything at random while clients pause, wake, fork, mark, rewind and try overlays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaign import Plan, run_round
from tests.faults.state_workload import StateWorkload
from tests.faults.world import Shape


@pytest.mark.timeout(300)
async def test_kills_amid_pauses_forks_and_rewinds_leave_nothing(tmp_path: Path) -> None:
    shape = Shape(services=2, nodes=2, store="external")
    plan = Plan(shape, cycles=100_000, seconds=12.0, seed=5, pause=(0.3, 1.5), away=(0.5, 3.0), after=4.0)
    outcome = await run_round(plan, tmp_path, workload=StateWorkload)
    assert outcome.outputs_checked > 0
    assert not outcome.wrong_output
    assert not outcome.undocumented
    assert not outcome.handed_out_twice
    assert not outcome.logged_errors
    assert not outcome.left, "\n".join(outcome.left)
