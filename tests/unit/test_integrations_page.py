"""The table of frameworks is of the programs and versions that the tests run."""

from __future__ import annotations

import pytest

from tests.mesh.integrations.framework_programs import LANGCHAIN_E2B, PROGRAMS, Program
from tests.mesh.integrations.integrations_page import BEGIN, PAGE, versions
from tests.mesh.integrations.scripted_model import EXAMPLES

ROWS = [line.split(" | ") for line in PAGE.read_text().split(BEGIN)[1].splitlines() if line.startswith("| [")]


def test_the_table_has_a_row_for_each_program_and_each_program_a_page() -> None:
    assert [row[2] for row in ROWS] == [f"`{program.command}`" for program in PROGRAMS]
    assert all((EXAMPLES / program.file).is_file() and (PAGE.parent / program.page).is_file() for program in PROGRAMS)


@pytest.mark.parametrize(("program", "row"), list(zip(PROGRAMS, ROWS, strict=True)))
def test_a_row_names_the_versions_that_the_tests_install(program: Program, row: list[str]) -> None:
    if program.file.endswith(".mjs"):
        assert row[3].rpartition(", Node ")[0] == versions(program).rpartition(", Node ")[0]
    pinned = [
        requirement.partition("[")[0] + requirement.partition("]")[2]
        for requirement in program.requirements
        if "[" in requirement
    ]
    pinned += [requirement for requirement in (*program.requirements, LANGCHAIN_E2B) if "[" not in requirement]
    known = dict(one.split("==") for one in pinned if "==" in one)
    for name in program.packages if program.requirements else ():
        assert name not in known or f"{name} {known[name]}" in row[3], row
