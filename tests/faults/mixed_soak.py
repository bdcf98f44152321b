"""Sessions of mixed work for long, while one of the services or the store is killed each minute.

python -m tests.faults.mixed_soak --seconds 7200 --out .reliability/mixed.json
It prints the table of what each process, the store and the mesh's folders held, and ends with 1 where a series grew or
an output was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandmesh import BaseSandboxAsync, SandboxService
from sandmesh.errors import SandmeshError
from sandmesh.mesh import MeshAsync
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from tests.faults.campaign import DOCUMENTED
from tests.faults.leftovers import wait_until_clean
from tests.faults.soak import REMEMBERED_SECONDS, Bounds, Sample, sample, trends
from tests.faults.storm import SETTLE_SECONDS, Storm
from tests.faults.workload import Workload
from tests.faults.world import Shape, World, open_world
from tests.leaks import mark_process

SHAPE = Shape(services=2, nodes=1)


@dataclass(frozen=True)
class Course:
    """How it goes: sessions side by side, seconds in all, between kills, between samples and between actions."""

    sessions: int = 20
    seconds: float = 7200.0
    kill_seconds: float = 60.0
    sample_seconds: float = 30.0
    pause: tuple[float, float] = (1.0, 5.0)
    seed: int = 1


@dataclass
class Soaked:
    """What it showed."""

    seconds: float = 0.0
    actions: dict[str, int] = field(default_factory=dict[str, int])
    struck: dict[str, int] = field(default_factory=dict[str, int])
    errors: dict[str, int] = field(default_factory=dict[str, int])
    errors_in_the_clear: list[str] = field(default_factory=list[str])
    """Errors of actions that met no fault."""
    undocumented: list[str] = field(default_factory=list[str])
    wrong_output: list[str] = field(default_factory=list[str])
    unsaved: int = 0
    """Workspaces that were not saved, as their last event says: their node was away for longer than its grace."""
    samples: list[Sample] = field(default_factory=list[Sample])
    left: list[str] = field(default_factory=list[str])


@dataclass
class Met:
    """What all sessions met: failures with their time and class."""

    actions: Counter[str] = field(default_factory=Counter[str])
    errors: list[tuple[float, float, str, str]] = field(default_factory=list[tuple[float, float, str, str]])
    wrong: list[str] = field(default_factory=list[str])
    unsaved: int = 0
    """Workspaces that were not saved, as their last event says."""


class Session:
    """One user's session: a kernel that counts, files, commands, and at times a new sandbox with what was saved."""

    def __init__(self, number: int, world: World, met: Met, dice: random.Random) -> None:
        self._service = SandboxService(world.addresses(number), timeout=60)
        self._names = (f"session-{number}", f"user-{number}")
        self._met, self._dice = met, dice
        self._count: int | None = None
        """How often the kernel has counted; None where a failure left it unknown."""
        self._text: str | None = None
        self._box: BaseSandboxAsync | None = None
        self._address = world.addresses(number)
        self._last = ""
        """The sandbox that was released last, whose workspace the next one has if it could be saved."""

    async def run(self, calm: asyncio.Event, pause: tuple[float, float]) -> None:
        """Work until it is calm, then close the session."""
        actions: Sequence[tuple[str, int, Callable[[BaseSandboxAsync], Awaitable[None]]]] = [
            ("cell", 8, self._count_up),
            ("command", 4, self._print),
            ("write", 3, self._write),
            ("read", 3, self._read),
            ("reopen", 1, self._reopen),
        ]
        await self._service.start()
        while not calm.is_set():
            name, _, action = self._dice.choices(actions, [weight for _, weight, _ in actions])[0]
            await self._attempt(name, action)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._dice.uniform(*pause)):
                    await calm.wait()
        await self._service.release_async(*self._names)
        await self._service.stop()

    async def _attempt(self, name: str, action: Callable[[BaseSandboxAsync], Awaitable[None]]) -> None:
        began = time.monotonic()
        self._met.actions[name] += 1
        try:
            if self._box is None:
                (self._box,) = await self._service.connect_async(*self._names)
                self._count = None
                if self._last and await self._was_not_saved(self._last):
                    self._met.unsaved += 1
                    self._text = None
                self._last = ""
            await action(self._box)
        except SandmeshError as error:
            self._met.errors.append((began, time.monotonic(), type(error).__name__, f"{name}: {error}"[:300]))
            self._count = self._text = None
            if type(error).__name__ in ("SandboxLost", "SandboxNotFound", "LeaseLost", "WrongState", "NotFound"):
                self._box = None

    async def _count_up(self, box: BaseSandboxAsync) -> None:
        if self._count is None:
            await box.run_ipython_cell("count = 0")
            self._count = 0
        answer = await box.run_ipython_cell("count += 1; print(count)")
        self._count += 1
        self._same(f"{self._count}\n", answer.stdout, "a kernel counted")

    async def _print(self, box: BaseSandboxAsync) -> None:
        lines = self._dice.randint(1, 3000)
        answer = await box.run_shell_command(f"seq {lines}")
        self._same("".join(f"{line}\n" for line in range(1, lines + 1)), answer.stdout, f"seq {lines} printed")

    async def _write(self, box: BaseSandboxAsync) -> None:
        text = secrets.token_hex(self._dice.choice((8, 4000, 200_000)))
        self._text = None
        await box.fs.write("kept", text)
        self._text = text

    async def _read(self, box: BaseSandboxAsync) -> None:
        if self._text is not None:
            self._same(self._text, (await box.fs.read("kept")), "a file had")

    async def _reopen(self, box: BaseSandboxAsync) -> None:
        """End the sandbox, whose workspace is saved; the next action begins with it."""
        self._last, self._box = box.sandbox_id, None
        await self._service.release_async(*self._names)

    async def _was_not_saved(self, sandbox_id: str) -> bool:
        """Return whether an event says that a workspace could not be saved, since its node was away for too long."""
        async with MeshAsync(self._address) as mesh:
            events = await mesh.events.list(sandbox_id=sandbox_id)
        return any("goes on with what was saved before" in event.reason for event in events)

    def _same(self, expected: str, found: str, what: str) -> None:
        if expected != found:
            self._met.wrong.append(f"{what} {found[:60]!r} of {len(found)}, not {expected[:60]!r} of {len(expected)}")


async def soak(folder: Path, course: Course, log: Callable[[str], None]) -> Soaked:
    """Run a world, its sessions, kills and samples."""
    environment = {
        "SANDMESH_EVENT_SECONDS": str(REMEMBERED_SECONDS),
        "SANDMESH_STORAGE_FOLDER": str(folder / "storage"),
    }
    (folder / "storage").mkdir()
    async with open_world(folder, shape=SHAPE, environment=environment) as world:
        await Workload(world.addresses, lines=200).run(4, 16)
        # Zygotes stay for their users: bwrap, the zygote and its template process each.
        idle = len(world.runtime.inside()) + 3 * BubblewrapSettings.model_fields["zygotes"].default
        soaked, met, calm, began = Soaked(), Met(), asyncio.Event(), time.monotonic()
        storm = Storm(world, course.seed)
        dice = [random.Random(course.seed * 1000 + number) for number in range(course.sessions)]  # noqa: S311 - repeated
        async with asyncio.TaskGroup() as tasks:
            for number in range(course.sessions):
                tasks.create_task(Session(number, world, met, dice[number]).run(calm, course.pause))
            killing = tasks.create_task(_kill(storm, course))
            while time.monotonic() - began < course.seconds:
                await asyncio.sleep(course.sample_seconds)
                taken = await sample(world, time.monotonic() - began, met.actions.total(), _folders(world, folder))
                soaked.samples.append(taken)
                log(f"{taken.seconds:.0f} s: {taken.cycles} actions, {storm.struck.total()} kills, {_short(met)}")
            killing.cancel()
            await _all_run(world)
            calm.set()
        soaked.seconds = round(time.monotonic() - began, 1)
        soaked.left = await wait_until_clean(world, idle)
        _account(soaked, met, storm)
        return soaked


async def _kill(storm: Storm, course: Course) -> None:
    dice = random.Random(course.seed)  # noqa: S311 - the same kills again
    victims = [*storm.world.programs, "store"]
    while True:
        await asyncio.sleep(course.kill_seconds)
        await storm.strike(dice.choice(victims), dice)


async def _all_run(world: World) -> None:
    """Start what was killed when the time was over."""
    for program in world.programs.values():
        if program.pid is None:
            await program.start()
    if not await world.store.find_pid():
        await world.store.start()


def _folders(world: World, folder: Path) -> dict[str, int]:
    paths = world.settings.paths
    places = {
        "sandboxes": paths.of_all_nodes()[0].sandboxes,
        "state": paths.state,
        "runtime": paths.runtime,
        "storage": folder / "storage",
    }
    return {name: _files(place) for name, place in places.items()}


def _files(folder: Path) -> int:
    """Count what is in a folder, workspaces left out: what users write is theirs."""
    found = 0
    for _, folders, files in os.walk(folder):
        found += len(folders) + len(files)
        folders[:] = [name for name in folders if name not in ("workspace", "packages", "home")]
    return found


def _short(met: Met) -> str:
    return f"{len(met.errors)} errors, {len(met.wrong)} wrong"


def _account(soaked: Soaked, met: Met, storm: Storm) -> None:
    soaked.actions, soaked.struck = dict(met.actions), dict(storm.struck)
    soaked.errors = dict(Counter(name for _, _, name, _ in met.errors))
    soaked.undocumented = sorted(set(soaked.errors) - DOCUMENTED)
    soaked.wrong_output, soaked.unsaved = met.wrong, met.unsaved
    windows = [(begin, end + SETTLE_SECONDS) for begin, end in storm.windows]
    for began, ended, name, detail in met.errors:
        if not any(begin <= ended and began <= end for begin, end in windows):
            soaked.errors_in_the_clear.append(f"{name} {detail}")


def main() -> None:
    """Run it, keep what it showed and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=Course.seconds)
    parser.add_argument("--sessions", type=int, default=Course.sessions)
    parser.add_argument("--out", type=Path, default=Path(".reliability/mixed.json"))
    options = parser.parse_args()
    mark_process()
    every = max(1.0, options.seconds / 240)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        course = Course(options.sessions, options.seconds, sample_seconds=every)
        soaked = asyncio.run(soak(Path(folder), course, _say))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(asdict(soaked), indent=1) + "\n")
    found = trends(soaked.samples, Bounds())
    for one in found:
        _say(f"| {one.what} | {one.name} | {one.second:g} | {one.last:g} | {'yes' if one.flat else 'NO'} |")
    bad = [*soaked.wrong_output, *soaked.undocumented, *soaked.left, *(str(one) for one in found if not one.flat)]
    shown = ("actions", "struck", "errors", "errors_in_the_clear", "undocumented", "wrong_output", "unsaved", "left")
    for name in shown:
        _say(f"{name}: {getattr(soaked, name)}")
    sys.exit(1 if bad else 0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
