"""What the door for E2B's clients reads from labels, which any user of a mesh may set."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.marks import Marks, read_marks

WHOLE = Marks(template="base", metadata={"a": "b" * 2000}, volumes={"/mnt": "data"}, variables=["A"], mcp=["time"])


def labels(**values: Any) -> dict[str, str]:
    return {"e2b": "1", "e2b.0": json.dumps(values)}


def test_marks_are_read_as_they_were_written() -> None:
    assert read_marks(WHOLE.labels()) == WHOLE


@pytest.mark.parametrize("count", ["99999999999", "9" * 6000, "65", "0", "-1", "²", "٣", "", "1.0"])
def test_a_count_of_pieces_beyond_what_is_written_marks_nothing(count: str) -> None:
    assert read_marks(WHOLE.labels() | {"e2b": count}) is None


@pytest.mark.parametrize(
    "text", ["[" * 250, "[]", "5", "null", '{"template": 5}', "{}", '{"template": "base", "metadata": []}', "\ud800"]
)
def test_pieces_that_are_no_marks_mark_nothing(text: str) -> None:
    assert read_marks({"e2b": "1", "e2b.0": text}) is None


@pytest.mark.parametrize(
    "values",
    [
        {"metadata": {"a": 1}},
        {"metadata": "ab"},
        {"auto_pause": 1},
        {"auto_pause": "yes"},
        {"variables": {"a": "b"}},
        {"volumes": ["a"]},
        {"workdir": None},
    ],
)
def test_a_field_of_another_type_marks_nothing(values: dict[str, Any]) -> None:
    assert read_marks(labels(template="base", **values)) is None


def test_fields_of_a_later_version_are_left_out() -> None:
    assert read_marks(labels(template="base", invented_later=True)) == Marks(template="base")


@given(st.dictionaries(st.sampled_from(["e2b", "e2b.0", "e2b.1"]), st.text(max_size=300)))
def test_no_labels_raise(found: dict[str, str]) -> None:
    assert isinstance(read_marks(found), Marks | None)


def test_metadata_beyond_its_bound_is_refused_when_it_is_written() -> None:
    with pytest.raises(ApiError):
        Marks(template="base", metadata={"a": "b" * 20_000}).labels()
