"""The page of the threat model names tests that exist, and all attempts."""

from __future__ import annotations

import re
from pathlib import Path

from sandmeshd.drivers.conformance import REQUIREMENTS

from .probes.every import PROBES

ROOT = Path(__file__).parents[2]


def named() -> set[str]:
    """Return the names in the column "held by" of the page's tables."""
    names: set[str] = set()
    for table in (ROOT / "docs" / "threat-model.md").read_text().split("held by |\n")[1:]:
        for line in table.partition("\n\n")[0].splitlines():
            names |= set(re.findall(r"`([^`]+)`", line.strip("|").rpartition("|")[2]))
    return names


def there() -> set[str]:
    """Return the names of all tests, attempts and requirements."""
    found = {requirement.__name__ for requirement in REQUIREMENTS} | PROBES.keys()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found |= set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    return found


def test_every_test_that_the_page_names_exists() -> None:
    assert len(named()) > 100
    assert named() - there() == set()


def test_every_attempt_is_on_the_page() -> None:
    assert PROBES.keys() - named() == set()


def test_the_page_says_what_is_shared_and_what_is_stronger() -> None:
    page = (ROOT / "docs" / "threat-model.md").read_text()
    for word in ("share the host's kernel", "layout of its address space", "gVisor", "virtual machine"):
        assert word in page
