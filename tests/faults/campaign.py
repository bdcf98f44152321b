"""A round of a storm, from the start of a mesh to the last leftover, and its outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandmesh import errors
from tests.faults.leftovers import wait_until_clean
from tests.faults.storm import Storm
from tests.faults.workload import Workload
from tests.faults.world import Shape, World, open_world

DOCUMENTED = frozenset(name for name in dir(errors) if name[:1].isupper()) - {"InternalError"}
"""What a client may be told; an internal error is documented and is a defect all the same."""
GRACE_SECONDS = 30.0
"""How long after the last fault a create may still fail."""
CLEAN_SECONDS = 60.0
REPORT_SECONDS = 30.0
LEAST_PART = 0.99
"""How many of the creates outside fault windows must succeed."""
LEASES = {"SANDMESH_LEASE_SECONDS": "45"}
"""What was released on a node that is away, an emptied store forgets: that ends with its lease, within a minute."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What a round is: its mesh, how many cycles at least, and what strikes it how often."""

    shape: Shape
    cycles: int
    seconds: float
    """When it ends, whatever the cycles."""
    seed: int = 1
    clients: int = 4
    pause: tuple[float, float] = (3.0, 7.0)
    away: tuple[float, float] = (2.0, 12.0)
    after: float = GRACE_SECONDS + 10.0
    """How long clients go on after the last fault."""
    course: Sequence[str] = ()
    """What is struck first, each once, in any order, however long it takes."""


@dataclass
class Outcome:
    """What a round showed; every figure is counted, none is estimated."""

    store: str
    runtime: str = "bubblewrap"
    seconds: float = 0.0
    cycles: int = 0
    creates_in_the_clear: int = 0
    creates_in_the_clear_that_succeeded: int = 0
    creates_in_windows: int = 0
    creates_in_windows_that_succeeded: int = 0
    late_failures: list[str] = field(default_factory=list[str])
    struck: dict[str, int] = field(default_factory=dict[str, int])
    errors: dict[str, int] = field(default_factory=dict[str, int])
    undocumented: list[str] = field(default_factory=list[str])
    wrong_output: list[str] = field(default_factory=list[str])
    outputs_checked: int = 0
    handed_out_twice: int = 0
    left: list[str] = field(default_factory=list[str])
    clean_after_seconds: float = 0.0
    failures_in_the_clear: list[str] = field(default_factory=list[str])
    logged_errors: list[str] = field(default_factory=list[str])
    """What a service logged as an error: each is something that it did not expect."""

    def as_dict(self) -> dict[str, object]:
        """Return it as it is stored."""
        return asdict(self)


async def run_round(plan: Plan, folder: Path, log: Log = print, workload: type[Workload] = Workload) -> Outcome:
    """Run one round in a mesh of its own, with clients that do what a workload says."""
    async with open_world(folder, shape=plan.shape, environment=LEASES) as world:
        idle = await _warm_up(world)
        storm = Storm(world, plan.seed, plan.pause, plan.away, course=plan.course)
        work = workload(world.addresses)
        began, calm = time.monotonic(), asyncio.Event()
        running = asyncio.create_task(work.run(plan.clients, 1 << 40, until=calm))
        logging_progress = asyncio.create_task(_log_progress(work, storm, plan, log))
        await storm.rage(lambda: len(work.account.cycles) >= plan.cycles or time.monotonic() - began > plan.seconds)
        over = time.monotonic()
        await asyncio.sleep(plan.after)
        calm.set()
        await running
        logging_progress.cancel()
        outcome = _outcome_of(work, storm, over, plan.shape.store)
        outcome.runtime = world.runtime.name
        outcome.seconds = round(time.monotonic() - began, 1)
        ended = time.monotonic()
        outcome.left = await wait_until_clean(world, idle, CLEAN_SECONDS)
        outcome.clean_after_seconds = round(time.monotonic() - ended, 1)
        outcome.logged_errors = _logged_errors(world)
        return outcome


async def _warm_up(world: World) -> int:
    """Use every node once, and give how many processes there are inside when nobody uses anything."""
    warm = Workload(world.addresses)
    await warm.run(clients=2 * world.shape.nodes, cycles=4 * world.shape.nodes)
    if warm.account.errors() or warm.account.wrong:
        raise RuntimeError(f"it did not work before anything was broken: {warm.account}")
    left = await wait_until_clean(world, idle=10 * world.shape.nodes)
    if left:
        raise RuntimeError(f"something was left before anything was broken: {left}")
    return len(world.runtime.inside())


def _logged_errors(world: World) -> list[str]:
    logs = {name: world.log(name) for name in world.programs}
    lines = [f"{name}: {line}" for name, log in logs.items() for line in log.splitlines()]
    return [line for line in lines if '"level": "error"' in line or line.partition(": ")[2].startswith("Traceback")]


async def _log_progress(work: Workload, storm: Storm, plan: Plan, log: Log) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        account = work.account
        log(
            f"{time.monotonic() - began:.0f} s: {len(account.cycles)} of {plan.cycles} cycles, "
            f"{storm.struck.total()} faults, {account.errors().total()} errors, {len(account.wrong)} wrong"
        )


def _outcome_of(work: Workload, storm: Storm, over: float, store: str) -> Outcome:
    account = work.account
    clear, succeeded = account.creates(storm.windows)
    created = sum(cycle.was_created for cycle in account.cycles)
    met = account.in_the_clear(storm.windows)
    return Outcome(
        store=store,
        cycles=len(account.cycles),
        creates_in_the_clear=clear,
        creates_in_the_clear_that_succeeded=succeeded,
        creates_in_windows=len(account.cycles) - clear,
        creates_in_windows_that_succeeded=created - succeeded,
        late_failures=[cycle.error for cycle in account.cycles if cycle.began > over + GRACE_SECONDS and cycle.error],
        struck=dict(storm.struck),
        errors=dict(account.errors()),
        undocumented=sorted(set(account.errors()) - DOCUMENTED),
        wrong_output=account.wrong,
        outputs_checked=account.checked,
        handed_out_twice=sum(count > 1 for count in account.handed_out.values()),
        failures_in_the_clear=[f"{one.began:.1f} {one.error}: {one.detail}" for one in met if not one.was_created],
    )
