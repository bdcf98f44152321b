"""Makes all attacks and writes the table of docs/threat-model.md: `python -m tests.attacks [FIELD ...]`."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.attacks import walls
from tests.attacks.campaign import run
from tests.attacks.tally import Tally
from tests.ordinary import ordinary_home, run_as_ordinary

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "threat-model.md"
_HEAD: Final = "| field | tried | held | broke |"
_WALLS: Final = "the kernel's walls, with a mesh of root"
_ORDINARY: Final = "the kernel's walls, with an ordinary user's mesh"


def main() -> None:
    """Make the attacks, print what broke, and write the table if all fields were tried."""
    if sys.argv[1:] == ["--walls"]:
        sys.stdout.write(json.dumps(vars(_walls(_ORDINARY))))
        return
    chosen = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        tallies = asyncio.run(run(Path(folder), chosen))
    if not chosen:
        tallies += [_walls(_WALLS), _walls_of_ordinary_user()]
    for tally in tallies:
        print(f"{tally.name}: {tally.tried} tried, {len(tally.broken)} broke")  # noqa: T201 - a program
        print("".join(f"  {one}\n" for one in tally.broken), end="")  # noqa: T201 - as above
    if not chosen:
        _write(tallies)


def _walls(name: str) -> Tally:
    tally = Tally(name)
    walls.attempt(tally)
    return tally


def _walls_of_ordinary_user() -> Tally:
    with ordinary_home() as home:
        done = run_as_ordinary(home, sys.executable, "-m", "tests.attacks", "--walls")
    return Tally(**json.loads(done.stdout.splitlines()[-1]))


def _write(tallies: list[Tally]) -> None:
    before, _, rest = PAGE.read_text().partition(_HEAD)
    _, _, after = rest.partition("\n\n")
    rows = [
        f"| {tally.name} | {tally.tried} | {tally.tried - len(tally.broken)} | {len(tally.broken)} |"
        for tally in tallies
    ]
    tried, broke = sum(tally.tried for tally in tallies), sum(len(tally.broken) for tally in tallies)
    rows.append(f"| all | {tried:,} | {tried - broke:,} | {broke} |")
    PAGE.write_text(before + "\n".join([_HEAD, "| --- | --- | --- | --- |", *rows]) + "\n\n" + after)


if __name__ == "__main__":
    main()
