"""Layers as overlayfs takes them, unpacked by root."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ordinary import run_tests, subordinate_home
from tests.unit.images.unpack_cases import *  # noqa: F403 - the same cases as an ordinary user

CASES = Path(__file__).with_name("unpack_cases.py")


@pytest.mark.needs("root")
def test_an_ordinary_user_with_subordinate_ids_has_the_same_layers() -> None:
    with subordinate_home() as home:
        run_tests(home, str(CASES))
