"""kill -9 of everything at random, API server and kubelet included, while clients create, call and release pods."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.cluster import Cluster
from tests.faults.campaign import LEAST_PART, Plan, run_round
from tests.faults.clusters import Kubernetes
from tests.faults.world import Shape

pytestmark = [pytest.mark.needs("root", "docker", "kubernetes"), pytest.mark.timeout(900)]

COURSE = (
    *("driver1", "sandbox", "pod deleted", "API server", "kubelet"),
    *("gateway1", "broker1", "allocator1", "store", "store emptied", "sandbox"),
)
SEEDS = {"external": 1, "embedded": 2}


@pytest.mark.parametrize("store", ["external", "embedded"])
async def test_kills_at_random_leave_nothing_in_the_cluster(
    tmp_path: Path, cluster: Cluster, store: Literal["external", "embedded"]
) -> None:
    shape = Shape(services=2, nodes=1, store=store, runtime=Kubernetes(cluster))
    plan = Plan(shape, cycles=1, seconds=1.0, seed=SEEDS[store], course=COURSE, pause=(1.5, 4.0), after=40.0)
    outcome = await run_round(plan, tmp_path)
    assert not outcome.wrong_output
    assert not outcome.undocumented
    assert not outcome.handed_out_twice
    assert not outcome.late_failures
    assert outcome.creates_in_the_clear_that_succeeded >= LEAST_PART * outcome.creates_in_the_clear, outcome
    assert not outcome.logged_errors
    assert not outcome.left, outcome
