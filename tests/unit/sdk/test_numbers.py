"""Whole numbers in texts of strangers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandmesh.shared.numbers import decimal

MOST = 65_535


@pytest.mark.parametrize("text", ["", "²", "٣", "+1", "-1", " 1", "1 ", "1_0", "0x1", "1.0", "65536", "9" * 6000])
def test_what_is_not_a_number_within_bounds_is_refused(text: str) -> None:
    assert decimal(text, MOST) is None


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("443", 443), ("65535", MOST), ("0" * 6000 + "80", 80)])
def test_a_number_within_bounds_is_read(text: str, number: int) -> None:
    assert decimal(text, MOST) == number


@given(st.text(max_size=20), st.integers(0, 10**12))
def test_any_text_is_a_number_or_none(text: str, most: int) -> None:
    found = decimal(text, most)
    assert found is None or (0 <= found <= most and found == int(text))
