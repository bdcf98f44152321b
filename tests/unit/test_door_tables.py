"""The tables of what clients' methods do are as the program writes them, of the versions that are tested."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from scripts.door_calls import Calls
from scripts.door_tables import BEGIN, END, merged, replaced, table

from tests.mesh.doors import test_agentscope
from tests.mesh.doors.door_pages import CLIENTS
from tests.mesh.doors.e2b import test_e2b_clients

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| [^|]+ \| [^|]+ \| [^|]+ \| [^|]+ \|")


@pytest.mark.parametrize(("client", "least"), [("e2b", 75), ("agentscope", 60), ("swerex", 10), ("sandboxfusion", 12)])
def test_the_page_of_a_door_has_the_table_of_the_versions_that_are_tested(client: str, least: int) -> None:
    page = (ROOT / "docs" / CLIENTS[client].page).read_text()
    made = page[page.index(BEGIN) : page.index(END)].splitlines()
    assert f" with {CLIENTS[client].versions}, " in made[1]
    rows = [line for line in made if line.startswith("| ")]
    assert all(ROW.fullmatch(line) for line in rows)
    answered = [line.split("|")[2] for line in rows]
    assert sum(cell.count("`") // 2 for cell in answered) >= least


def test_the_tables_are_made_with_the_packages_that_the_tests_install() -> None:
    assert set(CLIENTS["e2b"].requirements) < set(test_e2b_clients.CLIENTS)
    assert CLIENTS["agentscope"].requirements == (test_agentscope.PACKAGE,)
    tests = "".join(
        (ROOT / "tests" / "mesh" / "doors" / f"test_{name}.py").read_text() for name in ("swerex", "sandboxfusion")
    )
    for name in ("swerex", "sandboxfusion"):
        assert f'"{CLIENTS[name].requirements[0]}"' in tests
    for one in CLIENTS.values():
        assert all((ROOT / "examples" / program).is_file() for program in (*one.programs, *one.named))


class Box:
    """Methods that end in each way."""

    def plain(self) -> int:
        return 1

    def catches(self) -> int:
        try:
            return self._raises()
        except ValueError:
            return 2

    def leaves(self) -> int:
        try:
            return self._raises()
        except KeyError:
            return 2

    def _raises(self) -> int:
        raise ValueError

    def wrapped(self) -> int:
        return 3

    async def awaits(self) -> int:
        await asyncio.sleep(0)
        return await self._awaited()

    async def fails(self) -> int:
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
            return await self._awaited() + self._raises()

    async def fails_inside(self) -> int:
        return await self._fails()

    async def _awaited(self) -> int:
        await asyncio.sleep(0)
        return 1

    async def _fails(self) -> int:
        await asyncio.sleep(0)
        raise ValueError

    def tells(self) -> str:
        return "Error: HTTP 500 Server Error"

    def unused(self) -> None:
        pass


class LargeBox(Box):
    """A class whose calls are those of the other, too."""


def test_what_a_method_did_is_told_by_how_its_calls_end() -> None:
    calls = Calls({"Box": f"{__name__}.Box", "LargeBox": f"{__name__}.LargeBox"})
    small, large = Box(), LargeBox()
    before = sys.gettrace()
    sys.settrace(calls.trace)
    try:
        small.plain()
        large.catches()
        small.tells()
        with suppress(ValueError):
            small.leaves()
        asyncio.run(small.awaits())
        for call in (small.fails, small.fails_inside):
            with suppress(ValueError):
                asyncio.run(call())
    finally:
        sys.settrace(before)
    did = {name: what for (owner, name), what in calls.did.items() if owner == "Box"}
    kinds = {
        "answered": "awaits catches plain",
        "raised": "fails fails_inside leaves tells",
        "not called": "unused wrapped",
    }
    assert did == {name: kind for kind, names in kinds.items() for name in names.split()}
    assert [name for (owner, name), what in calls.did.items() if owner == "LargeBox" and what != "not called"] == [
        "catches"
    ]


def test_a_method_that_any_program_was_answered_is_answered() -> None:
    one = [("Box", "a", "raised"), ("Box", "b", "not called"), ("Box", "c", "answered")]
    two = [("Box", "a", "answered"), ("Box", "b", "raised"), ("Box", "c", "not called")]
    assert merged([one, two]) == [("Box", "a", "answered"), ("Box", "b", "raised"), ("Box", "c", "answered")]


def test_a_table_says_of_each_method_what_it_did() -> None:
    calls = [("Sandbox", "create", "answered"), ("Sandbox", "old", "not called"), ("Secret", "create", "raised")]
    text = table(calls, "e2b 1")
    assert "| Sandbox | `create` | - | `old` |" in text
    assert "| Secret | - | `create` | - |" in text
    assert replaced(f"a\n{BEGIN}\nold\n{END}\nb", text) == f"a\n{BEGIN}\n{text}\n{END}\nb"
