"""The README shows what is run: its Python is that of files in examples/, and it stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```python\n# (examples/\w+\.py)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_every_python_block_names_its_file() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("```python") == len(BLOCKS) > 0


@pytest.mark.parametrize(("name", "shown"), BLOCKS)
def test_a_shown_program_is_the_file_that_is_run(name: str, shown: str) -> None:
    assert shown == (ROOT / name).read_text()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 130
