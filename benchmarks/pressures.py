"""What one sandbox that takes all it gets costs its neighbour: 1,000 calls without the pressure and with it, in turns.

`python -m benchmarks.pressures` measures bubblewrap as root and as an ordinary user without subordinate uids and with
them, docker and gvisor; without root, bubblewrap alone. Each turn creates a sandbox, too, which must answer. Docker and
gvisor are measured on the engine at SANDMESH_DOCKER_URL, or on one that is started for it.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from tests.engine import own_engine
from tests.isolation.pressures import END, PRESSURES, Pressure
from tests.ordinary import ordinary_home, run_as_ordinary, run_as_subordinate, subordinate_home

from benchmarks.figures import Figure
from benchmarks.meshes import RunningMesh, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync, SandmeshError

TURNS, CALLS = 5, 1_000
BOUND = 3.0
CALL_SECONDS, TAKE_SECONDS = 30.0, 240.0
ORDINARY = "bubblewrap as an ordinary user"
USERS = {
    "ordinary": (ORDINARY, ordinary_home, run_as_ordinary),
    "subordinate": (f"{ORDINARY} with subordinate uids", subordinate_home, run_as_subordinate),
}
"""The ordinary users: how the place is called, their homes, and what runs a command as them."""
PLACES: Mapping[str, str] = {
    "bubblewrap": "bubblewrap as root" if os.geteuid() == 0 else ORDINARY,
    **{name: user[0] for name, user in USERS.items()},
    "docker": "docker",
    "gvisor": "gvisor",
}


@dataclass
class Turns:
    """The seconds of calls that answered, and how much did not answer."""

    seconds: list[float] = field(default_factory=list[float])
    failures: list[str] = field(default_factory=list[str])

    def percentile(self, percent: int) -> float:
        """Return a percentile of the calls in milliseconds."""
        return statistics.quantiles(self.seconds, n=100)[percent - 1] * 1e3

    async def calls(self, box: BaseSandboxAsync, count: int) -> None:
        """Make calls of several tools, one after another."""
        kinds: list[Callable[[str], Awaitable[object]]] = [
            lambda text: box.run_shell_command(f"echo {text}"),
            lambda text: box.run_ipython_cell(f"print({text})"),
            lambda text: box.run_ipython_cell(f"{text} + 1"),
            lambda text: box.fs.write("file", text),
        ]
        for number in range(count):
            await self._call(kinds[number % len(kinds)](str(number)))

    async def create(self, mesh: RunningMesh) -> None:
        """Create one more sandbox and have it answer."""
        try:
            async with asyncio.timeout(2 * CALL_SECONDS), BaseSandboxAsync(base_url=mesh.address) as box:
                await box.run_ipython_cell("1+1")
        except (SandmeshError, TimeoutError) as error:
            self.failures.append(f"a create: {error or 'no answer'}")

    async def _call(self, call: Awaitable[object]) -> None:
        started = time.perf_counter()
        try:
            result: Any = await asyncio.wait_for(call, CALL_SECONDS)
        except (SandmeshError, TimeoutError) as error:
            self.failures.append(str(error) or "no answer")
            return
        if getattr(result, "is_error", False):
            self.failures.append(result.text)
        else:
            self.seconds.append(time.perf_counter() - started)


def on_driver(driver: str) -> Mapping[str, Pressure]:
    """Return the pressures by their names, as a driver bounds them.

    gVisor's own kernel counts signals, of which user code gets fewer than are worth the attempt; its memory is bounded
    by default and cannot be specified.
    """
    if driver != "gvisor":
        return PRESSURES
    kept = {what: pressure for what, pressure in PRESSURES.items() if what != "pending signals"}
    return kept | {"memory": Pressure(PRESSURES["memory"].program)}


async def neighbour_calls(mesh: RunningMesh, pressure: Pressure, calls: int, turns: int = TURNS) -> tuple[Turns, Turns]:
    """Return a neighbour's calls without a pressure and with it.

    Raises:
        CapabilityMissing: The driver cannot enforce the limit that bounds the pressure.
    """
    quiet, under = Turns(), Turns()
    limits: Any = dict(pressure.limits) or None
    each = -(-calls // turns)
    async with (
        BaseSandboxAsync(base_url=mesh.address, limits=limits) as taker,
        BaseSandboxAsync(base_url=mesh.address) as neighbour,
    ):
        # The first calls of a sandbox are slower.
        await Turns().calls(neighbour, 40)
        for _ in range(turns):
            await quiet.calls(neighbour, each)
            await quiet.create(mesh)
            async with _taken(taker, pressure):
                await under.calls(neighbour, each)
                await under.create(mesh)
    return quiet, under


@asynccontextmanager
async def _taken(box: BaseSandboxAsync, pressure: Pressure) -> AsyncGenerator[None]:
    held = await box.run_ipython_cell(pressure.start(), timeout=TAKE_SECONDS)
    if held.stdout != "True\n":
        raise RuntimeError(f"the program took nothing: {held}")
    try:
        yield
    finally:
        await box.run_ipython_cell(END, timeout=TAKE_SECONDS)


def _figure(what: str, quiet: Turns, under: Turns) -> Figure:
    p50s, p99s = ([one.percentile(percent) for one in (quiet, under)] for percent in (50, 99))
    made = len(under.seconds) + len(under.failures)
    example = f", such as {under.failures[0][:200]!r}" if under.failures else ""
    text = (
        f"p50 {p50s[0]:.2f} -> {p50s[1]:.2f} ms, p99 {p99s[0]:.2f} -> {p99s[1]:.2f} ms: {p99s[1] / p99s[0]:.2f} times; "
        f"{len(under.failures)} of {made:,} failed"
    )
    return Figure(what, text + example, f"{BOUND:g} times, 0")


async def _on(place: str, wanted: list[str], calls: int, console: Console) -> list[Figure]:
    """Measure pressures on a driver of this machine, as this user."""
    found: list[Figure] = []
    async with running_mesh(environment={"SANDMESH_DRIVER": place}) as mesh:
        for what, pressure in on_driver(place).items():
            if what not in wanted:
                continue
            with console.status(f"{PLACES[place]}: {what}"):
                line = f"{PLACES[place]}: {what}"
                try:
                    found.append(_figure(line, *await neighbour_calls(mesh, pressure, calls)))
                except (SandmeshError, RuntimeError) as error:
                    found.append(Figure(line, f"not measured: {error}"))
                console.print(found[-1].what, found[-1].measured, highlight=False)
    return found


def _as_user(name: str, wanted: list[str], calls: int) -> list[Figure]:
    place, open_home, run = USERS[name]
    command = [sys.executable, "-B", "-m", "benchmarks.pressures", "bubblewrap", "--json", "--calls", str(calls)]
    with open_home() as home:
        done = run(home, *command, *(part for what in wanted for part in ("--pressure", what)))
    if done.returncode != 0:
        return [Figure(place, f"not measured: {done.stderr.strip()[-500:]}")]
    lines = [Figure(**line) for line in json.loads(done.stdout)]
    return [replace(line, what=line.what.replace(ORDINARY, place)) for line in lines]


@contextmanager
def _engine() -> Generator[None]:
    """Have an engine at SANDMESH_DOCKER_URL for the duration of a block."""
    with ExitStack() as stack:
        if "SANDMESH_DOCKER_URL" not in os.environ:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="smb-", dir="/run")))
            os.environ["SANDMESH_DOCKER_URL"] = stack.enter_context(own_engine(folder))[0]
            stack.callback(os.environ.pop, "SANDMESH_DOCKER_URL")
        yield


def measure(places: list[str], wanted: list[str], calls: int, console: Console) -> list[Figure]:
    """Measure pressures at places, one after another."""
    found: list[Figure] = []
    with ExitStack() as stack:
        if {"docker", "gvisor"} & {*places}:
            stack.enter_context(_engine())
        for place in places:
            other = place in USERS
            found += _as_user(place, wanted, calls) if other else asyncio.run(_on(place, wanted, calls, console))
    return found


def main() -> None:
    """Measure and print."""
    parser = arguments("benchmarks.pressures", __doc__)
    parser.add_argument("places", nargs="*", metavar="PLACE", help=f"{', '.join(PLACES)} (default: all that can be)")
    parser.add_argument("--pressure", action="append", choices=list(PRESSURES), help="measure this one (default: all)")
    parser.add_argument("--calls", type=int, default=CALLS, help=f"of the neighbour, each way (default: {CALLS})")
    parser.add_argument("--json", action="store_true", help="print the lines as JSON")
    options = parser.parse_args()
    if unknown := {*options.places} - {*PLACES}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PLACES)}")
    title = machine()
    places = options.places or (list(PLACES) if os.geteuid() == 0 else ["bubblewrap"])
    found = measure(places, options.pressure or list(PRESSURES), options.calls, Console(stderr=True))
    if options.json:
        print(json.dumps([asdict(figure) for figure in found]))
    else:
        show(found, title, as_markdown=options.markdown)


if __name__ == "__main__":
    main()
