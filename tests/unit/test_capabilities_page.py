"""The page about capabilities is what the drivers answer."""

from __future__ import annotations

from pathlib import Path

from scripts.capabilities_page import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "capabilities.md"


def test_the_page_of_capabilities_is_what_the_drivers_answer() -> None:
    assert PAGE.read_text() == page(), "python scripts/capabilities_page.py > docs/capabilities.md"
