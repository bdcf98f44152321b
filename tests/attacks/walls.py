"""The kernel's walls: the attempts of tests/isolation, wherever user code runs and however sandboxes start."""

from __future__ import annotations

from tests.attacks.tally import Tally
from tests.isolation.conftest import attempt_all, ways


def attempt(tally: Tally) -> None:
    """Make all attempts."""
    for way in ways():
        tables = attempt_all(way)
        for place, table in (("program", tables.program), ("cell", tables.cell)):
            for name, did in table.items():
                tally.note(f"{way}, {place}: {name}: {did}", held=not did)
