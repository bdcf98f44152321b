"""The patches of `make mutants`: each still applies, and its test exists."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tests.mutants.__main__ import table
from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.protections import MUTANTS


def _name(mutant: Mutant) -> str:
    return mutant.protection


@pytest.mark.parametrize("mutant", MUTANTS, ids=_name)
def test_a_patch_applies_and_its_test_exists(mutant: Mutant, tmp_path: Path) -> None:
    copy = tmp_path / mutant.file
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / mutant.file, copy)
    mutant.apply(tmp_path)
    if copy.suffix == ".py":
        compile(copy.read_text(), mutant.file, "exec")
    file, _, name = mutant.test.partition("::")
    tests = ast.parse((ROOT / file).read_text()).body
    assert name in {test.name for test in tests if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_protection_is_named_once_and_there_are_forty() -> None:
    assert len({mutant.protection for mutant in MUTANTS}) == len(MUTANTS) >= 40


def test_the_threat_model_has_the_table() -> None:
    hint = "put what `python -m tests.mutants --list` prints into docs/threat-model.md"
    assert table() in (ROOT / "docs" / "threat-model.md").read_text(), hint


def test_a_patch_that_no_longer_fits_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "wall.py").write_text("nothing = 1\n")
    with pytest.raises(ValueError, match="0 times"):
        Mutant("a wall", "wall.py", "wall = 1", "", "tests/none.py::test_none").apply(tmp_path)
