"""Layers as overlayfs takes them, unpacked by root."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.ordinary import ordinary_home, run_as_ordinary, run_tests, subordinate_home
from tests.unit.images.unpack_cases import *  # noqa: F403 - the same cases as an ordinary user

CASES = Path(__file__).with_name("unpack_cases.py")


@pytest.mark.needs("root")
def test_an_ordinary_user_with_subordinate_ids_has_the_same_layers() -> None:
    with subordinate_home() as home:
        run_tests(home, str(CASES))


@pytest.mark.needs("root")
def test_an_ordinary_user_without_subordinate_ids_is_told_how_to_get_some() -> None:
    code = "import asyncio; from pathlib import Path; from sandmeshd.images.settings import ImageSettings as S;"
    code += "from sandmeshd.images.store import ImageStore; asyncio.run(ImageStore(S(), Path.home() / 'i').pull('a'))"
    with ordinary_home() as home:
        done = run_as_ordinary(home, sys.executable, "-c", code)
        assert not (home / "i").exists()
    assert "usermod --add-subuids" in done.stderr
