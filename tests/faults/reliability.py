"""Runs storms and a soak in full, in rounds that are kept, so that a run that was ended goes on where it was.

python -m tests.faults.reliability --cycles 10000 --soak-seconds 3600 --out .reliability
With `--runtime docker` it starts an engine of its own, as root, and keeps what it finds in a folder of that name.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tests.engine import own_engine
from tests.faults.browser_storm import storm_browsers
from tests.faults.campaign import LEAST_PART, Plan, run_round
from tests.faults.containers import Docker
from tests.faults.runtimes import Bubblewrap, Runtime
from tests.faults.soak import Bounds, Course, Sample, soak, trends
from tests.faults.world import Shape
from tests.leaks import mark_process

NONE = ("late_failures", "undocumented", "wrong_output", "handed_out_twice", "left", "logged_errors")
"""The results that must be empty."""
STORES: tuple[Literal["external"], Literal["embedded"]] = ("external", "embedded")


def main() -> None:
    """Run the requested rounds that have no results yet."""
    options = _arguments()
    mark_process()
    if options.runtime != "bubblewrap":
        options.out /= options.runtime
    options.out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.seconds
    with _opened(options.runtime) as runtime:
        if not options.soak_only:
            _storms(options, ends, runtime)
        if options.browser_cycles > 0:
            _browsers(options)
        if options.soak_seconds > 0:
            _soak(options, runtime)
    failed = _failures(options.out)
    for line in failed:
        _log(f"FAILED: {line}")
    sys.exit(1 if failed else 0)


@contextmanager
def _opened(name: str) -> Generator[Runtime]:
    if name == "bubblewrap":
        yield Bubblewrap()
        return
    with _Folder() as folder, own_engine(folder) as (url, daemon):
        if daemon is None:
            sys.exit(f"the engine at {url} would be killed: unset SANDMESH_TEST_DOCKER_URL, and one is started")
        yield Docker(daemon)


def _failures(out: Path) -> list[str]:
    """List what does not hold of what was kept."""
    rounds: list[dict[str, Any]] = [json.loads(path.read_text()) for path in sorted(out.glob("storm-*.json"))]
    found = [f"round {number}: {name} {one[name]}" for number, one in enumerate(rounds) for name in NONE if one[name]]
    clear = sum(one["creates_in_the_clear"] for one in rounds)
    done = sum(one["creates_in_the_clear_that_succeeded"] for one in rounds)
    if done < LEAST_PART * clear:
        found.append(f"{done} of {clear} creates outside fault windows succeeded")
    if (out / "browsers.json").exists():
        left = json.loads((out / "browsers.json").read_text())["left"]
        found += [f"browsers: left {left}"] if left else []
    if (out / "soak.json").exists():
        soaked = json.loads((out / "soak.json").read_text())
        series = trends([Sample(**sample) for sample in soaked["samples"]], Bounds())
        found += [f"soak: {trend}" for trend in series if not trend.flat]
        found += [f"soak: {name} {soaked[name]}" for name in ("errors", "wrong_output", "left") if soaked[name]]
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runtime", choices=("bubblewrap", "docker"), default="bubblewrap", help="what is struck")
    parser.add_argument("--cycles", type=int, default=10_000, help="create/call/release cycles under fire, in all")
    parser.add_argument("--round-cycles", type=int, default=1000, help="those of one round, in a mesh of its own")
    parser.add_argument("--seconds", type=float, default=3 * 3600.0, help="begin no storm after so long")
    parser.add_argument("--browser-cycles", type=int, default=200, help="cycles of browsers on bubblewrap; 0: none")
    parser.add_argument("--soak-seconds", type=float, default=3600.0, help="how long the soak is; 0: none")
    parser.add_argument("--soak-cycles", type=int, default=1 << 40, help="it ends after so many cycles, too")
    parser.add_argument("--soak-pace", type=float, default=4.0, help="the most cycles of it a second; 0: no bound")
    parser.add_argument("--soak-only", action="store_true", help="no storms")
    parser.add_argument("--out", type=Path, default=Path(".reliability"), help="where results are kept")
    return parser.parse_args()


def _storms(options: argparse.Namespace, ends: float, runtime: Runtime) -> None:
    number, done = 0, 0
    while done < options.cycles and time.monotonic() < ends:
        kept = options.out / f"storm-{number:03}.json"
        if not kept.exists():
            store = STORES[number % len(STORES)]
            shape = Shape(services=2, nodes=2, store=store, runtime=runtime)
            plan = Plan(shape, options.round_cycles, seconds=1800.0, seed=number, course=runtime.faults)
            _log(f"round {number}, {store} store, {done} of {options.cycles} cycles so far")
            with _Folder() as folder:
                outcome = asyncio.run(run_round(plan, folder, _log))
                _keep(kept, outcome.as_dict())
                if outcome.left or outcome.undocumented or outcome.logged_errors:
                    shutil.copytree(folder, options.out / f"logs-{number:03}", ignore=shutil.ignore_patterns("store"))
        done += json.loads(kept.read_text())["cycles"]
        number += 1
    _log(f"{done} cycles under fire")


def _browsers(options: argparse.Namespace) -> None:
    kept = options.out / "browsers.json"
    if not kept.exists() and options.runtime == "bubblewrap" and not options.soak_only:
        _log(f"{options.browser_cycles} cycles of browsers")
        with _Folder() as folder:
            _keep(kept, asyncio.run(storm_browsers(folder, options.browser_cycles)).as_dict())


def _soak(options: argparse.Namespace, runtime: Runtime) -> None:
    kept = options.out / "soak.json"
    if kept.exists():
        return
    with _Folder() as folder:
        every = max(1.0, options.soak_seconds / 120)
        course = Course(options.soak_cycles, options.soak_seconds, every, pace=options.soak_pace, runtime=runtime)
        _keep(kept, {"pace": options.soak_pace, **asyncio.run(soak(folder, course, _log)).as_dict()})


class _Folder:
    """A folder for a world's logs with a short path, kept where the round fails."""

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(prefix="storm-"))
        return self._path

    def __exit__(self, error_type: object, *_: object) -> None:
        if error_type is None:
            shutil.rmtree(self._path)


def _keep(path: Path, outcome: dict[str, object]) -> None:
    facts = {"commit": _commit(), "ended": datetime.now(UTC).isoformat(timespec="seconds"), "machine": _machine()}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({**facts, **outcome}, indent=1) + "\n")
    fresh.rename(path)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _machine() -> dict[str, object]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(pages / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[2], 1),
    }


def _log(line: str) -> None:
    sys.stdout.write(f"{datetime.now(UTC):%H:%M:%S} {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
