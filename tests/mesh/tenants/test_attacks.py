"""Attacks on one mesh with everything that tenants share: a part of `python -m tests.attacks`, and its table."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.attacks import egress
from tests.attacks.campaign import EGRESS, FIELDS
from tests.attacks.tally import Tally
from tests.attacks.target import Target, open_target

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "threat-model.md"
QUICK = [name for name in FIELDS if name.startswith(("URLs", "the same by name", "the console", "remains", "lines"))]
"""The others have tests: of every RPC and route, of E2B's types, of hostile pages."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Target]:
    """Run the mesh that is attacked."""
    async with open_target(tmp_path_factory.mktemp("attacks")) as opened:
        yield opened


@pytest.mark.parametrize("name", QUICK)
async def test_no_attack_of_a_field_breaks_anything(target: Target, name: str) -> None:
    tally = Tally(name)
    await FIELDS[name](target, tally)
    assert tally.tried >= 20
    assert tally.broken == []


async def test_nothing_but_what_is_granted_is_asked_of_the_nodes_own_proxy() -> None:
    tally = Tally(EGRESS)
    await egress.leave(tally)
    assert tally.tried > 300
    assert tally.broken == []


async def test_the_page_has_each_field_with_five_hundred_attempts_or_more() -> None:
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \| ([\d,]+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    tried = {name: int(number.replace(",", "")) for name, number, _, _ in rows}
    assert {*FIELDS, EGRESS} <= tried.keys()
    assert tried["all"] == sum(number for name, number in tried.items() if name != "all") > 500
