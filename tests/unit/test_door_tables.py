"""The tables of what clients' methods do are as the program writes them, of the versions that are tested."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.door_tables import BEGIN, END, replaced, table

from tests.mesh.test_e2b_clients import CLIENTS

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| [^|]+ \| [^|]+ \| [^|]+ \| [^|]+ \|")


def test_the_page_of_e2bs_clients_has_the_table_of_the_versions_that_are_tested() -> None:
    page = (ROOT / "docs" / "e2b.md").read_text()
    made = page[page.index(BEGIN) : page.index(END)].splitlines()
    for version in CLIENTS[:2]:
        assert version.replace("==", " ") in made[1]
    rows = [line for line in made if line.startswith("| ")]
    assert all(ROW.fullmatch(line) for line in rows)
    assert len(rows) > 8
    answered = [line.split("|")[2] for line in rows]
    assert sum(cell.count("`") // 2 for cell in answered) > 60


def test_a_table_says_of_each_method_what_it_did() -> None:
    calls = [("Sandbox", "create", "answered"), ("Sandbox", "old", "not called"), ("Secret", "create", "raised")]
    text = table(calls, "e2b 1")
    assert "| Sandbox | `create` | - | `old` |" in text
    assert "| Secret | - | `create` | - |" in text
    assert replaced(f"a\n{BEGIN}\nold\n{END}\nb", text) == f"a\n{BEGIN}\n{text}\n{END}\nb"
