"""A roll-out of many episodes at once, with faults that are injected and failures of the tasks' own.

`python -m benchmarks.rollouts [--episodes 500] [--at-once 500]` runs episodes of some steps, each in a sandbox of its
own, of which AT-ONCE exist at once. One in twenty has each kind of fault injected, one in ten fails by its own code.
More episodes than AT-ONCE are rounds, after which nothing may be left (a soak). The table says what became of all; the
program ends with 1 where a fault was blamed on the wrong one, a reward is missing or something is left. It takes root.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Figure
from benchmarks.meshes import RunningMesh, processes_below, proportional_bytes, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync, MeshAsync, SandmeshError, ToolResult

STEPS = 5
EVERY = 20
"""One episode in so many has one kind of fault."""
MEMORY = "256MiB"
WHO = "import os; print(os.readlink('/proc/self/ns/pid'), os.getpid())"
KINDS = (
    "its sandbox is killed",
    "its kernel is killed",
    "a step takes too long",
    "no memory is left",
    "it is released",
)
OWN = ("its code raises", "its command fails")
TASKS = (*OWN, "its kernel is killed")
"""What counts as the task's: who sent a signal cannot be known."""
SECONDS = 300.0
LONG_CELL = "import time; open('began', 'w').close(); time.sleep(60)"


class TaskFailed(Exception):
    """A step failed; the argument says whose fault it was."""


@dataclass
class Rollout:
    """What was seen."""

    rewards: int = 0
    missing: int = 0
    steps: int = 0
    creates: list[float] = field(default_factory=list[float])
    creating: float = 0.0
    """The seconds from the first request of each round to its last sandbox."""
    uncreated: Counter[str] = field(default_factory=Counter[str])
    blamed: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    memory: list[int] = field(default_factory=list[int])
    cpu: float = 0.0
    """Processor seconds of the mesh and its sandboxes up to the last step, without those of ended sandboxes."""
    left: int = 0

    @property
    def is_right(self) -> bool:
        """Whether every episode that was to end has its reward, and no failure is blamed on the wrong one."""
        wrong = sum(count for (kind, fault), count in self.blamed.items() if (kind in TASKS) != (fault == "task"))
        return not (wrong or self.missing or self.left or self.uncreated)


def kind_of(number: int) -> str:
    """Return what is to happen to an episode; "" for nothing."""
    place = number % EVERY
    return (*KINDS, *OWN)[place] if place < len(KINDS) + len(OWN) else ""


async def roll_out(total: int, at_once: int, console: Console) -> tuple[Rollout, float]:
    """Return what was seen, and the seconds that it took."""
    seen = Rollout()
    environment = {"SANDMESH_MAX_SANDBOXES": str(at_once + 20)}
    async with running_mesh(environment=environment) as mesh, MeshAsync(mesh.address) as client:
        async with BaseSandboxAsync(base_url=mesh.address) as box:
            await box.run_ipython_cell("1")
        before, began = await _settled(client, mesh), time.perf_counter()
        for start in range(0, total, at_once):
            with console.status(f"episodes {start} and on"):
                await _round(client, mesh, range(start, min(start + at_once, total)), seen)
        seconds = time.perf_counter() - began
        # Spares and zygotes are the mesh's own.
        seen.left = max(0, await _settled(client, mesh) - before - 8)
        seen.left += len([sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use])
    return seen, seconds


async def _settled(client: MeshAsync, mesh: RunningMesh) -> int:
    """Wait until no sandbox is left, and return how many processes the mesh has."""
    async with asyncio.timeout(SECONDS):
        while (await client.capacity()).used:  # noqa: ASYNC110 - nothing reports the last deletion
            await asyncio.sleep(0.1)
    return len(processes_below(mesh.pid))


async def _round(client: MeshAsync, mesh: RunningMesh, numbers: range, seen: Rollout) -> None:
    all_there, may_end, tasks = asyncio.Event(), asyncio.Event(), list[asyncio.Task[None]]()
    episodes, before, began = list[_Episode](), _cpu_of(mesh), time.perf_counter()
    async with asyncio.timeout(SECONDS * 6):
        items = client.create_many(len(numbers), job="rollout", concurrency=len(numbers), limits={"memory": MEMORY})
        async for item in items:
            if item.sandbox is None:
                seen.uncreated[str(item.fault)] += 1
                continue
            seen.creates.append(item.seconds)
            episode = _Episode(numbers[item.index], item.sandbox, client, seen)
            episodes.append(episode)
            tasks.append(asyncio.create_task(episode.play(all_there, may_end)))
        seen.creating += time.perf_counter() - began
        seen.memory.append(proportional_bytes(processes_below(mesh.pid)) // max(1, len(tasks)))
        all_there.set()
        await asyncio.gather(*(episode.played.wait() for episode in episodes))
        seen.cpu += _cpu_of(mesh) - before
        may_end.set()
        await asyncio.gather(*tasks)


@dataclass
class _Episode:
    number: int
    box: BaseSandboxAsync
    client: MeshAsync
    seen: Rollout
    played: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self, all_there: asyncio.Event, may_end: asyncio.Event) -> None:
        kind = kind_of(self.number)
        try:
            for step in range(STEPS):
                await self._step(f"{step} + {self.number}", str(step + self.number))
                if step == 0:
                    await all_there.wait()
            await self._happen(kind)
            self.seen.rewards += 1
            self.seen.missing += bool(kind)
        except TaskFailed as failed:
            self._blame(kind, str(failed))
        except SandmeshError as error:
            self._blame(kind, error.fault)
        finally:
            self.played.set()
            await may_end.wait()
            with suppress(SandmeshError):
                await self.box.close()

    def _blame(self, kind: str, fault: str) -> None:
        self.seen.blamed[kind or "nothing was to happen", fault] += 1

    async def _step(self, code: str, expected: str) -> None:
        result = await self.box.run_ipython_cell(code)
        if result.is_error:
            raise TaskFailed(result.fault)
        self.seen.steps += result.text.strip() == expected

    async def _happen(self, kind: str) -> None:
        box = self.box
        happenings: dict[str, Callable[[], Awaitable[ToolResult]]] = {
            KINDS[0]: lambda: self._killed(1),
            KINDS[1]: lambda: self._killed(0),
            KINDS[2]: lambda: box.run_ipython_cell("import time; time.sleep(60)", timeout=0.5),
            KINDS[3]: lambda: box.run_ipython_cell("x = b'x' * (1 << 30)"),
            KINDS[4]: self._released,
            OWN[0]: lambda: box.run_ipython_cell("raise ValueError('wrong')"),
            OWN[1]: lambda: box.run_shell_command("exit 3"),
        }
        if kind:
            result = await happenings[kind]()
            if result.is_error:
                raise TaskFailed(result.fault)

    async def _killed(self, generations: int) -> ToolResult:
        """Kill the kernel, or what is PID 1 of the sandbox, while a cell runs."""
        namespace, inside = (await self.box.run_ipython_cell(WHO)).text.split()
        running = await self._long_call()
        pid = await asyncio.to_thread(_on_host, namespace, inside)
        firsts = [above for above in _ancestors(pid) if _numbers(above)[-1:] == ["1"]]
        os.kill(firsts[generations] if generations else pid, signal.SIGKILL)
        return await running

    async def _released(self) -> ToolResult:
        running = await self._long_call()
        await self.client.sandboxes.kill(self.box.sandbox_id)
        return await running

    async def _long_call(self) -> asyncio.Task[ToolResult]:
        """Start a cell that does not end before what is to happen to it, and return when it runs."""
        running = asyncio.create_task(self.box.run_ipython_cell(LONG_CELL))
        await self.box.run_shell_command("until [ -e began ]; do sleep 0.05; done")
        return running


def _on_host(namespace: str, inside: str) -> int:
    """Return the host's number of a process, by its namespace and its number there."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            here = folder.name.isdigit() and str((folder / "ns" / "pid").readlink()) == namespace
            if here and _numbers(int(folder.name))[-1:] == [inside]:
                return int(folder.name)
    raise ProcessLookupError(inside)


def _numbers(pid: int) -> list[str]:
    return _status(pid, "NSpid").split()


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(_status(pid, "PPid"))


def _status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2] for line in lines if line.startswith(f"{name}:"))


def _cpu_of(mesh: RunningMesh) -> float:
    """Return the processor seconds of the mesh's processes that exist, and of what they have waited for."""
    ticks = 0
    for pid in {mesh.pid, *processes_below(mesh.pid)}:
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def figures_of(seen: Rollout, seconds: float, cpu: float) -> Iterator[Figure]:
    """Yield the table."""
    episodes = seen.rewards + seen.blamed.total()
    creates = sorted(seen.creates)
    p99 = creates[max(0, round(0.99 * len(creates)) - 1)] if creates else 0.0
    yield Figure("episodes", f"{episodes} in {seconds:.0f} s, {episodes / seconds:.1f} a second")
    yield Figure("  with a reward", str(seen.rewards))
    yield Figure("  that were to fail and have one", str(seen.missing), "0")
    for (kind, fault), count in sorted(seen.blamed.items()):
        yield Figure(f"  {kind}", f'{count}, fault "{fault}"', '"task"' if kind in TASKS else 'not "task"')
    yield Figure("creates that failed", str(seen.uncreated.total()), "0")
    yield Figure("sandboxes created a second, whose first step runs beside", f"{len(creates) / seen.creating:.1f}")
    yield Figure("a create, with its wait (p50, p99)", f"{statistics.median(creates):.2f} s, {p99:.2f} s")
    yield Figure("steps a second, with creates and releases", f"{seen.steps / seconds:.0f}")
    yield Figure("memory that a sandbox takes, PSS", f"{max(seen.memory) / 1e6:.1f} MB")
    yield Figure("processor seconds for 1,000 episodes, mesh and sandboxes", f"{1000 * seen.cpu / episodes:.0f}")
    yield Figure("  of the program that trains", f"{1000 * cpu / episodes:.0f}")
    yield Figure("processes and sandboxes left", str(seen.left), "0")


def main() -> None:
    """Roll out, and print the table.

    Raises:
        SystemExit: Something is not as it has to be.
    """
    parser = arguments("benchmarks.rollouts", __doc__)
    parser.add_argument("--episodes", type=int, default=500, help="how many there are")
    parser.add_argument("--at-once", type=int, default=500, help="how many sandboxes exist at the same time")
    options = parser.parse_args()
    before = _own_cpu()
    seen, seconds = asyncio.run(roll_out(options.episodes, options.at_once, Console(stderr=True)))
    table = [*figures_of(seen, seconds, _own_cpu() - before)]
    show(table, f"Roll-outs, {options.at_once} at once, {machine()}", as_markdown=options.markdown)
    if not seen.is_right:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
