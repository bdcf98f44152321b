"""The tables of what clients' methods do, in the pages of the doors, of what `scripts/door_calls.py` found.

`python -m tests.mesh.doors.door_pages` runs the clients' programs and writes the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

BEGIN: Final = "<!-- made by tests/mesh/doors/door_pages.py -->"
END: Final = "<!-- end of what is made -->"
_KINDS: Final = ("answered", "raised", "not called")

Calls: TypeAlias = list[tuple[str, str, str]]
"""Whose methods were called, their names, and what each did."""


def merged(found: Iterable[Calls]) -> Calls:
    """Return what methods did in any of several programs: one that was answered anywhere is answered."""
    best: dict[tuple[str, str], str] = {}
    for calls in found:
        for owner, name, did in calls:
            best[owner, name] = min(best.get((owner, name), did), did, key=_KINDS.index)
    return [(owner, name, did) for (owner, name), did in best.items()]


def table(calls: Calls, client: str) -> str:
    """Return the table of a client's calls."""
    owners = list(dict.fromkeys(owner for owner, _, _ in calls))
    rows = [_row(owner, [(name, did) for one, name, did in calls if one == owner]) for owner in owners]
    head = [f"Made by `python -m tests.mesh.doors.door_pages` with {client}, of the programs in `examples/`.", ""]
    return "\n".join([*head, "| of the client | answered | refused | not called |", "| --- | --- | --- | --- |", *rows])


def _row(owner: str, calls: list[tuple[str, str]]) -> str:
    cells = [", ".join(f"`{name}`" for name, did in calls if did == kind) or "-" for kind in _KINDS]
    return f"| {owner} | {' | '.join(cells)} |"


def replaced(page: str, text: str, begin: str = BEGIN) -> str:
    """Return a page with another table between its marks, of which the first is `begin`.

    Raises:
        ValueError: The page has no marks.
    """
    first, last = page.index(begin) + len(begin), page.index(END)
    return f"{page[:first]}\n{text}\n{page[last:]}"
