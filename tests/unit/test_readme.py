"""Pages show what is run: their Python is that of files in examples/; links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTEGRATIONS = [f"docs/integrations/{path.name}" for path in sorted((ROOT / "docs" / "integrations").glob("*.md"))]
SHOWING = ["README.md", "docs/quickstart.md", "docs/frameworks.md", *INTEGRATIONS]
PAGES = {name: (ROOT / name).read_text() for name in SHOWING if name != "docs/integrations/README.md"}
PROGRAM = re.compile(r"```(?:python|js|ts)\n(?:#|//) (examples/[\w/]+\.(?:py|mjs|mts))\n(.*?)```", re.DOTALL)
SHOWN = {name: PROGRAM.findall(PAGES[name]) for name in PAGES}
BLOCKS = [block for blocks in SHOWN.values() for block in blocks]
INDEX = (ROOT / "docs" / "README.md").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_every_program_of_a_page_names_its_file(name: str) -> None:
    assert len(re.findall("```(?:python|js|ts)\n", PAGES[name])) == len(SHOWN[name]) > 0


@pytest.mark.parametrize(("name", "shown"), BLOCKS)
def test_a_shown_program_is_the_file_that_is_run(name: str, shown: str) -> None:
    assert shown == (ROOT / name).read_text()


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_the_index_lists_every_page(page: str) -> None:
    assert page == "README.md" or f"({page})" in INDEX


@pytest.mark.parametrize(
    "name",
    ["README.md", "CONTRIBUTING.md", *INTEGRATIONS, *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))],
)
def test_every_link_leads_to_a_file(name: str) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / name).read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", prose)
    assert [target for target in targets if not ((ROOT / name).parent / target).exists()] == []


def test_the_recording_is_small() -> None:
    assert (ROOT / "docs" / "demo.svg").stat().st_size < 1024 * 1024


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 130
