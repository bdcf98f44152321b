"""Print every block of code of the pages with its fate, as the site has it: `python -m scripts.blocks`."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.blocks.blocks import Block, Fate, blocks, fate_of
from scripts.blocks.rules import RULES

HEAD = """# Code in these pages

Every block of code of the pages, with the test that runs it or the reason why none does; a test holds that no block is
missing. What is not run is checked all the same: Python compiles, JSON, YAML and TOML parse, and commands of sandmesh
and their options exist.
"""


def page() -> str:
    """Return the page.

    Raises:
        LookupError: A block has no fate; the message names page and line.
    """
    found = [(block, _fate(block)) for block in blocks()]
    run = sum(bool(fate.test) for _, fate in found)
    return "\n".join([HEAD, f"{run} of {len(found)} blocks are run.", "", *_table(found), ""])


def _fate(block: Block) -> Fate:
    fate = fate_of(block, RULES)
    if fate is None:
        raise LookupError(
            f"{block.page}:{block.line} is run by nothing: say what runs it, or why, in scripts/blocks/rules.py"
        )
    return fate


def _table(found: Sequence[tuple[Block, Fate]]) -> list[str]:
    rows: dict[tuple[str, Fate], int] = {}
    for block, fate in found:
        rows[block.page, fate] = rows.get((block.page, fate), 0) + 1
    lines = [
        f"| {page} | {count} | {f'`{fate.test}`' if fate.test else ''} | {fate.reason} |"
        for (page, fate), count in rows.items()
    ]
    return ["| page | blocks | run by | not run: it |", "| --- | --- | --- | --- |", *lines]


if __name__ == "__main__":
    print(page(), end="")
