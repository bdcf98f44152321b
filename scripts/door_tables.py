"""Writes the tables of what clients' methods do, in the pages of the doors, of what `scripts/door_calls.py` found.

`python scripts/door_calls.py e2b PROGRAM... | python scripts/door_tables.py docs/e2b.md "e2b 2.63.0"`, with the Python
of the client and what the programs need in the environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- made by scripts/door_tables.py -->"
END: Final = "<!-- end of what is made -->"
_KINDS: Final = ("answered", "raised", "not called")


def table(calls: list[tuple[str, str, str]], client: str) -> str:
    """Return the table of a client's calls: the owner, the method, and what it did."""
    owners = list(dict.fromkeys(owner for owner, _, _ in calls))
    rows = [_row(owner, [(name, did) for one, name, did in calls if one == owner]) for owner in owners]
    head = [f"Made by `python scripts/door_tables.py` with {client}, of the programs in `examples/`.", ""]
    return "\n".join([*head, "| of the client | answered | refused | not called |", "| --- | --- | --- | --- |", *rows])


def _row(owner: str, calls: list[tuple[str, str]]) -> str:
    cells = [", ".join(f"`{name}`" for name, did in calls if did == kind) or "-" for kind in _KINDS]
    return f"| {owner} | {' | '.join(cells)} |"


def replaced(page: str, text: str) -> str:
    """Return a page with another table between its marks.

    Raises:
        ValueError: The page has no marks.
    """
    first, last = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:first]}\n{text}\n{page[last:]}"


def main() -> None:
    """Read calls, and write a page's table."""
    path, client = Path(sys.argv[1]), sys.argv[2]
    calls: list[tuple[str, str, str]] = [tuple(one) for one in json.load(sys.stdin)]
    path.write_text(replaced(path.read_text(), table(calls, client)))


if __name__ == "__main__":
    main()
