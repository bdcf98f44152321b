"""Write docs/reliability.md from the results of `python -m tests.faults.reliability`: `make reliability` runs both."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.browser_storm import AT_ONCE
from tests.faults.soak import Bounds, Sample, Trend, trends

Results = list[dict[str, Any]]

HEAD = """# Reliability

This page is written by `make reliability`, which runs the fault suite in full; no figure in it is written by hand.
It ran on a machine with {cores} cores and {memory_gib} GiB (Linux {kernel}, Python {python}), with bubblewrap as the
driver and everything on it, clients included, and other work beside it: the load average was {loads}.
"""

STORM = """## Storms

Four clients create a sandbox, run a cell, a command that prints 2,000 lines and another cell in it, and release it,
over and over, through two gateways, brokers and allocators, on two nodes. Every 3 to 7 s something is killed with
SIGKILL, at random, and started again: a service, Redis (with its data, or emptied), an agent, kernel or zygote, or a
whole node with its driver and all its sandboxes, which comes back 2 to 12 s later. A fault's window ends 1.5 s after
what was killed serves again; the loss of a node has a window of 6 s, and while it is away longer, creates have to
succeed on the other. Rounds, each in a separate mesh: {rounds}; together {minutes:.0f} minutes;
ended {ended}; commit {commits}.
"""

DOCKER = """## Storms on Docker

The same on an engine of the tests' own ({cores} cores, load average {loads}) that both nodes share: they are told apart
by their containers' labels. There the engine is killed and started again, too, which ends every container; a container
is killed, or removed, behind its driver's back; and what must not be left is containers, their processes, volumes and
networks as well. Rounds: {rounds}; together {minutes:.0f} minutes; ended {ended}; commit {commits}.
"""

BROWSERS = """## Browsers

{cycles:,} sandboxes with a browser, {at_once} at a time, on bubblewrap (load average {load:g}): each is created, opens
a page and shows it, and is deleted. Meanwhile something of it is killed, at random: {struck}.
{used:,} showed their page in the end, after answers that named what had ended; the others were lost with their sandbox,
as the error said ({lost}). Left when it was over, of processes, folders, control groups and records: {left}.
{minutes:.0f} minutes; ended {ended}; commit {commit}.
"""

SOAK = """## Soak

The same clients without any fault, {pace}, for {minutes:.0f} minutes and {cycles:,} cycles; ended {ended};
commit {commit}.
What each process holds is sampled {samples} times. Flat means that the average of the last quarter of the samples is
not above that of the second quarter by more than {part:.0%} or {mib:g} MiB of memory (PSS), {fds:g} descriptors,
{keys_part:.0%} or {keys:g} keys of a kind. This mesh remembers deleted sandboxes for a minute, so that what is kept of
them can be flat. Errors: {errors}. Left when it was over: {left}.
"""


def main() -> None:
    """Read the results and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(".reliability"))
    parser.add_argument("--page", type=Path, default=Path("docs/reliability.md"))
    arguments = parser.parse_args()
    rounds, in_docker = _rounds(arguments.results), _rounds(arguments.results / "docker")
    browsers = arguments.results / "browsers.json"
    kept = arguments.results / "soak.json"
    soak = json.loads(kept.read_text()) if kept.exists() else None
    if not rounds and not in_docker and soak is None:
        sys.exit(f"no results in {arguments.results}: `make reliability` makes them")
    every = [*rounds, *([soak] if soak else [])]
    parts = [_head(every or in_docker)]
    parts += [_storm(STORM, rounds), _by_store(rounds), _struck(rounds)] if rounds else []
    parts += [_storm(DOCKER, in_docker), _by_store(in_docker), _struck(in_docker)] if in_docker else []
    parts += [browser_section(json.loads(browsers.read_text()))] if browsers.exists() else []
    parts += [_soak(soak)] if soak else []
    arguments.page.write_text("\n".join(parts))


def _rounds(folder: Path) -> Results:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("storm-*.json"))]


def _head(every: Results) -> str:
    return HEAD.format(**{**every[-1]["machine"], "loads": _loads(every)})


def _loads(every: Results) -> str:
    loads = sorted({one["machine"]["load"] for one in every})
    return f"{loads[0]:g} to {loads[-1]:g}" if len(loads) > 1 else f"{loads[0]:g}"


def _storm(text: str, rounds: Results) -> str:
    return text.format(
        cores=rounds[-1]["machine"]["cores"],
        loads=_loads(rounds),
        rounds=len(rounds),
        minutes=sum(one["seconds"] for one in rounds) / 60,
        ended=rounds[-1]["ended"],
        commits=", ".join(sorted({one["commit"] for one in rounds})),
    )


def _by_store(rounds: Results) -> str:
    stores = sorted({one["store"] for one in rounds})
    of_each = {store: [fault_round for fault_round in rounds if fault_round["store"] == store] for store in stores}
    columns = [*of_each.values(), rounds]
    lines = [f"| | {' | '.join(f'{store} Redis' for store in stores)} | both |", f"| --- {'| --- ' * len(columns)}|"]
    for name, value in _ROWS.items():
        lines.append(f"| {name} | {' | '.join(value(column) for column in columns)} |")
    return "\n".join(lines) + "\n"


def _sum(rounds: Results, name: str) -> int:
    return sum(one[name] if isinstance(one[name], int) else len(one[name]) for one in rounds)


def _part(rounds: Results, name: str) -> str:
    whole, done = _sum(rounds, name), _sum(rounds, f"{name}_that_succeeded")
    return f"{done:,} of {whole:,} ({done / whole:.2%})" if whole else "none"


def _errors(rounds: Results) -> str:
    met = Counter[str]()
    for one in rounds:
        met.update(one["errors"])
    return ", ".join(f"{name} {count}" for name, count in met.most_common()) or "none"


_ROWS: dict[str, Callable[[Results], str]] = {
    "cycles": lambda rounds: f"{_sum(rounds, 'cycles'):,}",
    "faults": lambda rounds: f"{sum(sum(one['struck'].values()) for one in rounds):,}",
    "creates outside fault windows that succeeded": lambda rounds: _part(rounds, "creates_in_the_clear"),
    "creates inside them that succeeded": lambda rounds: _part(rounds, "creates_in_windows"),
    "failures later than 30 s after the last fault": lambda rounds: str(_sum(rounds, "late_failures")),
    "errors that clients met, by class": _errors,
    "errors that are not documented": lambda rounds: str(_sum(rounds, "undocumented")),
    "outputs compared, line by line": lambda rounds: f"{_sum(rounds, 'outputs_checked'):,}",
    "outputs with anything lost or wrong": lambda rounds: str(_sum(rounds, "wrong_output")),
    "sandboxes handed out twice": lambda rounds: str(_sum(rounds, "handed_out_twice")),
    "what services logged as errors": lambda rounds: str(_sum(rounds, "logged_errors")),
    "records, processes, folders, cgroups without an owner after 60 s": lambda rounds: str(_sum(rounds, "left")),
    "the longest until nothing was left": lambda rounds: f"{max(one['clean_after_seconds'] for one in rounds):g} s",
}


def _struck(rounds: Results) -> str:
    struck = Counter[str]()
    for one in rounds:
        struck.update(one["struck"])
    names = {"sandbox": "agent, kernel or zygote", "node": "whole node", "store": "Redis, with its data"}
    names |= {"store emptied": "Redis, emptied", "engine": "the engine", "container killed": "container"}
    names["container removed"] = "container, removed"
    lines = ["| killed | times |", "| --- | --- |"]
    return (
        "\n".join([*lines, *(f"| {names.get(name, name)} | {count} |" for name, count in struck.most_common())]) + "\n"
    )


def browser_section(storm: dict[str, Any]) -> str:
    """Return the section on a storm of browsers."""
    outcomes = Counter[str](storm["outcomes"])
    struck = Counter[str](storm["struck"]).most_common()
    lost = [f"{name} {count}" for name, count in outcomes.most_common() if name != "used"]
    return BROWSERS.format(
        cycles=storm["cycles"], at_once=AT_ONCE, load=storm["machine"]["load"], used=outcomes["used"],
        struck=", ".join(f"{name} {count} times" for name, count in struck), lost=", ".join(lost) or "none",
        left=", ".join(storm["left"]) or "nothing", minutes=storm["seconds"] / 60, ended=storm["ended"],
        commit=storm["commit"],
    )  # fmt: skip


def _soak(soak: dict[str, Any]) -> str:
    bounds = Bounds()
    samples = [Sample(**sample) for sample in soak["samples"]]
    introduction = SOAK.format(
        minutes=soak["seconds"] / 60, cycles=soak["cycles"], ended=soak["ended"], commit=soak["commit"],
        samples=len(samples), part=bounds.memory_part, mib=bounds.memory_mib, fds=bounds.descriptors,
        keys_part=bounds.keys_part, keys=bounds.keys,
        pace=f"at most {soak['pace']:g} cycles a second" if soak["pace"] else "as fast as they can",
        errors=", ".join(f"{name} {count}" for name, count in soak["errors"].items()) or "none",
        left=len(soak["left"]) or "nothing",
    )  # fmt: skip
    lines = ["| what | of | second quarter | last quarter | flat |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([introduction, *lines, *map(_row, trends(samples, bounds))]) + "\n"


def _row(trend: Trend) -> str:
    what = {"memory": "memory, MiB", "descriptors": "descriptors", "keys": "keys"}[trend.what]
    return f"| {what} | {trend.name} | {trend.second:g} | {trend.last:g} | {'yes' if trend.flat else 'NO'} |"


if __name__ == "__main__":
    main()
