"""Fuzz every public RPC, and the parsers of bytes that come out of sandboxes, for as long as wanted.

Each input depends on the seed, the target and its number alone, so what failed can be repeated by itself:
python -m tests.fuzz --seed SEED --input NUMBER TARGET
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from rich.console import Console
from rich.table import Table

from tests.fuzz.campaign import KEPT, ROOT, TARGETS, Plan, keep, run_all
from tests.fuzz.worker import Run


def main() -> None:
    """Run what the arguments name, print the table, and fail where anything did."""
    options = _arguments()
    targets = [TARGETS[name] for name in options.targets or TARGETS]
    jobs = min(options.jobs, len(targets))
    seconds = options.minutes * 60 * jobs / len(targets)
    plan = Plan(options.seed, seconds)
    if options.input is not None:
        plan = Plan(options.seed, seconds, options.input, options.input + 1)
    console = Console()
    console.print(f"{len(targets)} targets, {seconds:.0f} s each, {jobs} at once, seed {options.seed}")
    runs = asyncio.run(run_all(targets, plan, jobs, lambda run: _report(console, run)))
    console.print(markdown(runs) if options.markdown else table(runs), soft_wrap=True)
    sys.exit(1 if any(run.failures for run in runs) else 0)


def _arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__, formatter_class=raw)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; by default all")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other inputs")
    parser.add_argument("--jobs", type=int, default=2, help="how many targets run at once")
    parser.add_argument("--input", type=int, help="try this input alone")
    parser.add_argument("--markdown", action="store_true", help="print the table as a page has it")
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]}; there are {', '.join(TARGETS)}")
    return options


def _report(console: Console, run: Run) -> None:
    console.print(f"{run.target}: {run.tried:,} inputs in {run.seconds:.0f} s, {len(run.failures)} kinds of faults")
    for failure, path in zip(run.failures, keep(run), strict=True):
        console.print(
            f"  {failure.where}, {failure.times} times; the first input is {path.relative_to(ROOT)}", markup=False
        )
        console.print(
            f"  again: make fuzz FUZZ='--seed {run.seed} --input {failure.number} {run.target}'", markup=False
        )
        console.print(failure.text, markup=False, highlight=False)


def table(runs: list[Run]) -> Table:
    """Lay out what came of each target."""
    made = Table("target", "inputs", "a second", "outcomes", "faults", title="Fuzz", title_justify="left")
    for row in _rows(runs):
        made.add_row(*row)
    return made


def markdown(runs: list[Run]) -> str:
    """Return the table as a page has it."""
    rows = [" | ".join(row) for row in _rows(runs)]
    return "\n".join(
        f"| {row} |" for row in ("target | inputs | a second | outcomes | faults", "--- | " * 4 + "---", *rows)
    )


def _rows(runs: list[Run]) -> list[list[str]]:
    rows: list[list[str]] = []
    for run in runs:
        common = sorted(run.outcomes.items(), key=lambda item: -item[1])[:6]
        outcomes = ", ".join(f"{name} {count:,}" for name, count in common)
        rate = f"{run.tried / max(run.seconds, 0.001):,.0f}"
        rows.append([run.target, f"{run.tried:,}", rate, outcomes, str(sum(failure.times for failure in run.failures))])
    tried, faults = sum(run.tried for run in runs), sum(failure.times for run in runs for failure in run.failures)
    return [
        *rows,
        ["all", f"{tried:,}", "", f"the inputs that failed are in {KEPT.name}" if faults else "", str(faults)],
    ]


if __name__ == "__main__":
    main()
