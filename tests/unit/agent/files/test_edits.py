"""Edits and their diffs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandmesh import tools
from sandmesh.tools import Edit, Tool
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.tools.edits import apply_edits, fenced, unified_diff

Text = Callable[[Tool], str]

NO_END = "\\ No newline at end of file\n"


def edit(old: str, new: str) -> Edit:
    return {"oldText": old, "newText": new}


def patched(before: str, diff: str) -> str:
    """Apply a unified diff as patch(1) does without fuzz, checking every number and line of it."""
    old = before.split("\n")
    lines = [f"{line}\n" for line in old[:-1]] + ([old[-1]] if old[-1] else [])
    after: list[str] = []
    at = 0
    for hunk in re.split(r"(?m)^(?=@@ )", diff)[1:]:
        header, body = hunk.split("\n", 1)
        numbers = re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", header)
        assert numbers is not None
        start, taken = int(numbers[1]), int(numbers[2] or 1)
        start -= 1 if taken else 0
        after += lines[at:start]
        assert len(after) == int(numbers[3]) - (1 if int(numbers[4] or 1) else 0)
        at = start
        added = 0
        for kind, line in re.findall(r"([-+ ])([^\n]*\n(?:\\[^\n]*\n)?)", body):
            text = line[: -len(NO_END) - 1] if line.endswith(NO_END) else line
            if kind != "+":
                assert lines[at] == text
                at += 1
            if kind != "-":
                after.append(text)
                added += 1
        assert at - start == taken
        assert added == int(numbers[4] or 1)
    return "".join(after + lines[at:])


def test_edits_are_made_in_order_and_shown_as_git_does(text_of: Text, root: Path) -> None:
    (root / "config.ini").write_text("[server]\nport = 80\nhost = a\n")
    said = text_of(
        tools.EditFile("config.ini", [edit("port = 80", "port = 8080"), edit("8080\nhost = a", "8080\nhost = b")])
    )
    assert said == (
        "```diff\n"
        "diff --git a/config.ini b/config.ini\n--- a/config.ini\n+++ b/config.ini\n"
        "@@ -1,3 +1,3 @@\n [server]\n-port = 80\n-host = a\n+port = 8080\n+host = b\n"
        "```\n"
    )
    assert (root / "config.ini").read_text() == "[server]\nport = 8080\nhost = b\n"


def test_a_dry_run_shows_the_same_and_changes_nothing(text_of: Text, root: Path) -> None:
    (root / "f").write_text("one\n")
    shown = text_of(tools.EditFile("f", [edit("one", "two")], dry_run=True))
    assert (root / "f").read_text() == "one\n"
    assert text_of(tools.EditFile("f", [edit("one", "two")])) == shown


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ([edit("a", "b")], "edit 1 of 1: oldText occurs 2 times"),
        ([edit("c", "b"), edit("zzz", "y")], "edit 2 of 2: oldText is not in the file"),
        ([edit("", "b")], "oldText is empty"),
        ([edit("  \n ", "b")], "not in the file"),
    ],
)
def test_an_edit_that_does_not_fit_once_changes_nothing(
    failure_of: Text, root: Path, edits: list[Edit], words: str
) -> None:
    (root / "f").write_text("a\nc\na\n")
    assert words in failure_of(tools.EditFile("f", edits))
    assert (root / "f").read_text() == "a\nc\na\n"


def test_lines_that_differ_in_their_indentation_are_found_and_indented_as_they_were() -> None:
    text = "class A:\n    def f(self):\n        return 1\n\n    def g(self): ...\n"
    changed = apply_edits(text, [edit("def f(self):\n    return 1", "def f(self):\n    x = 2\n\n    return x")])
    assert changed == "class A:\n    def f(self):\n        x = 2\n\n        return x\n\n    def g(self): ...\n"


def test_lines_that_fit_in_several_places_are_refused() -> None:
    with pytest.raises(ToolFailure, match="2 times"):
        apply_edits("  a\n  b\nx\n\ta\n\tb\n", [edit("a \nb ", "c")])


@pytest.mark.parametrize("text", ["a\r\nb\r\nc\r\n", "a\nb\nc\n", "a\nb\nc"])
def test_line_ends_stay_as_they_are(text: str) -> None:
    end = "\r\n" if "\r\n" in text else "\n"
    assert apply_edits(text, [edit("a\nb", "A\nB")]) == f"A{end}B{text[len(f'a{end}b') :]}"


def test_a_diff_of_text_without_a_last_newline_says_so() -> None:
    assert NO_END in unified_diff("a\nb", "a\nc\n", "f")


def test_a_fence_is_longer_than_any_in_the_diff() -> None:
    assert fenced("+````python\n").startswith("`````diff\n")


def test_a_large_change_is_shown_as_one_block_that_fits() -> None:
    before = "".join(f"{at % 7}\n" for at in range(5000))
    after = f"new\n{before[2:-2]}other"
    assert patched(before, unified_diff(before, after, "f")) == after


lines = st.lists(st.sampled_from(["a", "b", "", "c c", "\r", "@@", "-x", "\x0c", "\u2028"]), max_size=30)
texts = st.tuples(lines, st.sampled_from(["", "\n"])).map(lambda pair: "\n".join(pair[0]) + pair[1])


@given(texts, texts)
def test_a_diff_makes_the_new_text_of_the_old(before: str, after: str) -> None:
    diff = unified_diff(before, after, "f")
    assert patched(before, diff) == after
    assert bool(diff) == (before != after)


@given(texts, st.data())
def test_replacing_a_text_that_stands_once_replaces_just_that(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    old = text[start : data.draw(st.integers(start, len(text)))]
    if old and text.find(old) == text.rfind(old) and "\r\n" not in text:
        assert apply_edits(text, [edit(old, "NEW")]) == f"{text[:start]}NEW{text[start + len(old) :]}"
