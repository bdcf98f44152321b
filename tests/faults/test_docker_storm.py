"""kill -9 of everything at random, the engine included, while clients create, call and release containers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

import pytest

from sandmeshd.drivers.engine.runtimes import DriverName
from tests.engine import Daemon, in_full
from tests.faults.campaign import GRACE_SECONDS, LEAST_PART, Plan, run_round
from tests.faults.containers import Docker
from tests.faults.world import Shape

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(900)]

RUNTIME = ("driver1", "node", "sandbox", "container killed", "container removed", "engine")
"""What a driver and its engine meet."""
COURSE = (*RUNTIME, "gateway1", "broker1", "allocator1", "driver2", "store", "store emptied", "sandbox")
SEEDS = {"external": 1, "embedded": 2}
RUNSC = pytest.mark.needs("runsc")
STORMS = [
    pytest.param("docker", "embedded", COURSE, id="docker-embedded"),
    pytest.param("gvisor", "external", RUNTIME, marks=RUNSC, id="gvisor-external"),
]
FURTHER = [
    pytest.param("docker", "external", COURSE, id="docker-external"),
    pytest.param("gvisor", "embedded", COURSE, marks=RUNSC, id="gvisor-embedded"),
]


class Pace(TypedDict):
    """How fast a storm is."""

    pause: tuple[float, float]
    after: float


def pace() -> Pace:
    """Return the plan of the tests: in short, faults overlap with repairs, and the calm after them is not tested."""
    if in_full():
        return Pace(pause=(1.5, 4.0), after=GRACE_SECONDS + 10.0)
    return Pace(pause=(0.5, 2.0), after=12.0)


@pytest.mark.parametrize(("driver_name", "store", "course"), [*STORMS, *FURTHER] if in_full() else STORMS)
async def test_kills_at_random_leave_nothing_on_the_engine(
    tmp_path: Path,
    served: tuple[str, Daemon | None],
    driver_name: DriverName,
    store: Literal["external", "embedded"],
    course: Sequence[str],
) -> None:
    _, daemon = served
    if daemon is None:
        pytest.skip("an engine of the tests' own is killed here; SANDMESH_TEST_DOCKER_URL names another")
    shape = Shape(services=2, nodes=2, store=store, runtime=Docker(daemon, driver_name))
    plan = Plan(shape, cycles=1, seconds=1.0, seed=SEEDS[store], course=course, away=(1.0, 4.0), **pace())
    outcome = await run_round(plan, tmp_path)
    assert not outcome.wrong_output
    assert not outcome.undocumented
    assert not outcome.handed_out_twice
    assert not outcome.late_failures
    assert outcome.creates_in_the_clear_that_succeeded >= LEAST_PART * outcome.creates_in_the_clear, outcome
    assert not outcome.logged_errors
    assert not outcome.left, outcome
