"""This checkout's mesh beside another one's, operation by operation in turns, as ratios.

`python -m benchmarks.versions CHECKOUT` takes another clone of the project, set up by its own `make set-up-local`, and
starts a mesh of each. What the machine does beside meets both alike, so that the ratio of the medians can be trusted
where absolute figures cannot.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.report import arguments, machine, show
from benchmarks.version_worker import OPERATIONS

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 600.0
TURN_SECONDS = 120.0
POOLED = {"warm": "base=2"}
"""What takes a mesh of its own, with this pool."""


@dataclass
class Version:
    """A mesh of one checkout, and what was measured with it."""

    worker: asyncio.subprocess.Process
    measured: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    async def answer(self, seconds: float) -> Any:
        """Return the next line of the worker."""
        if self.worker.stdout is None:
            raise RuntimeError("the worker's output is not read")
        line = await asyncio.wait_for(self.worker.stdout.readline(), seconds)
        if not line:
            raise RuntimeError("a worker ended early; see above")
        return json.loads(line)

    async def turn(self, name: str) -> None:
        """Have the worker measure something a few times."""
        if self.worker.stdin is None:
            raise RuntimeError("the worker's input is not written")
        self.worker.stdin.write(f"{name}\n".encode())
        answer: dict[str, list[float]] = await self.answer(TURN_SECONDS)
        for what, values in answer.items():
            self.measured.setdefault(what, []).extend(values)


@asynccontextmanager
async def running_version(checkout: Path, pool: str) -> AsyncGenerator[Version]:
    """Run a checkout's mesh with a client of the same checkout."""
    python = checkout / ".venv/bin/python"
    if not python.exists():
        raise SystemExit(f"{checkout} has no .venv: run `make set-up-local` there")
    worker = await asyncio.create_subprocess_exec(
        *(str(python), "-P", str(ROOT / "benchmarks/version_worker.py"), pool),
        cwd=checkout,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        version = Version(worker)
        await version.answer(START_SECONDS)
        yield version
    finally:
        if worker.stdin is not None:
            worker.stdin.close()
        await asyncio.wait_for(worker.wait(), TURN_SECONDS)


async def compare(other: Path, names: list[str], rounds: int) -> list[Figure]:
    """Measure both in turns; each round begins with the other one of the two."""
    found: list[Figure] = []
    for pool in ("", *sorted(set(POOLED.values()))):
        chosen = [name for name in names if POOLED.get(name, "") == pool]
        if not chosen:
            continue
        async with AsyncExitStack() as stack:
            before = await stack.enter_async_context(running_version(other, pool))
            now = await stack.enter_async_context(running_version(ROOT, pool))
            for number in range(rounds):
                for name in chosen:
                    for version in (before, now) if number % 2 else (now, before):
                        await version.turn(name)
        found += [_figure(what, before.measured[what], now.measured[what]) for what in now.measured]
    return found


def _figure(what: str, before: list[float], now: list[float]) -> Figure:
    first, second = statistics.median(before), statistics.median(now)
    return Figure(
        what, f"{first:.2f} -> {second:.2f} ms, {second / first:.2f} times", f"of {len(before)} and {len(now)}"
    )


def main() -> None:
    """Compare and print."""
    parser = arguments("benchmarks.versions", __doc__)
    parser.add_argument("checkout", type=Path, help="another clone of the project, set up")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(OPERATIONS)} (default: all)"
    )
    parser.add_argument("--rounds", type=int, default=12, help="how often each has its turn (default: 12)")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(OPERATIONS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(OPERATIONS)}")
    title = machine()
    found = asyncio.run(compare(chosen.checkout.resolve(), chosen.names or list(OPERATIONS), chosen.rounds))
    show(found, f"{chosen.checkout} -> this checkout, medians; {title}", as_markdown=chosen.markdown)


if __name__ == "__main__":
    main()
