"""docs/tour.md is of the commands that its script runs, and none of them failed where it should not."""

from __future__ import annotations

from pathlib import Path

from scripts.tour_page import DAY, HEAD

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tour.md"
HINT = "python scripts/tour_page.py > docs/tour.md"


def test_the_page_is_of_the_scripts_commands() -> None:
    page = PAGE.read_text()
    assert page.startswith(HEAD), HINT
    for title, commands in DAY:
        assert f"## {title}\n" in page, HINT
        for command in commands:
            assert f"\n$ {command}\n" in page, HINT


def test_no_command_of_the_page_was_used_wrongly() -> None:
    assert "Usage: " not in PAGE.read_text()
    assert "[exit code 2]" not in PAGE.read_text()
