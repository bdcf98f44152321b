"""Parts of the console that need no mesh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandmesh.events import ContentBlock, Output
from sandmeshd.facades.console import assets
from sandmeshd.facades.console.cells import MOST_TEXT, CellRows
from sandmeshd.facades.console.terminal import read_size

ROOT = Path(__file__).resolve().parents[4]


def test_the_packages_of_npm_are_those_of_the_list() -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "console_packages.py")], check=True)
    assert {"app.js", "app.css", "index.html", "preact.js", "xterm.js", "xterm.css"} <= assets.files().keys()


def test_pages_ask_for_nothing_beyond_their_origin() -> None:
    own = [path.read_text() for path in assets.PAGE.iterdir()]
    assert [text for text in own if "https://" in text or "//cdn" in text] == []
    assert all("innerHTML" not in text for text in own)


@pytest.mark.parametrize("fields", [{}, {"rows": 24}, {"rows": 0, "columns": 80}, {"rows": -1, "columns": "x"}])
def test_a_size_that_is_none_is_left(fields: dict[str, Any]) -> None:
    assert read_size(fields) is None


def test_a_size_is_bounded() -> None:
    assert read_size({"rows": "24", "columns": 80}) == (24, 80)
    assert read_size({"rows": 10**9, "columns": 80}) in (None, (1000, 80))


@pytest.mark.parametrize("size", [1 << 16, 100_000, 5 << 20])
def test_what_a_cell_writes_is_bounded_and_marked_once(size: int) -> None:
    rows = CellRows()
    found = [row for _ in range(30) for row in rows.of(Output("stdout", b"", "x" * size))]
    assert sum(len(row["text"]) for row in found if row["type"] == "text") == MOST_TEXT
    assert [row["type"] for row in found].count("note") == 1


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"type": 7, "text": None},
        {"type": "image", "data": 5},
        {"type": "text", "annotations": {"text/html": 7}},
        {"type": "text", "annotations": []},
    ],
)
def test_a_block_of_any_form_is_a_row(block: dict[str, Any]) -> None:
    (row,) = CellRows().of(ContentBlock(block))
    assert row["type"] == "note"
