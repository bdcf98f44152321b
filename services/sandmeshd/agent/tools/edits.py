"""Changing text by pieces, and showing the change: pure functions on text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final

from sandmesh._tools.filesystem import Edit
from sandmeshd.agent.calls.answer import ToolFailure

# difflib's time grows with the square of what differs: beyond this many lines the change is shown as one block.
_MOST_COMPARED: Final = 4_000
_CONTEXT: Final = 3


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Replace each oldText by its newText, in order; line ends stay as the text has them.

    An oldText must stand in the text exactly once. Where it does not stand there at all, lines that differ from it
    only in the white space around them are taken, and newText is indented as they were.

    Raises:
        ToolFailure: An oldText is empty, not there, or there several times.
    """
    windows_ends = "\r\n" in text and text.count("\n") == text.count("\r\n")
    for number, edit in enumerate(edits, start=1):
        old, new = edit["oldText"], edit["newText"]
        if windows_ends:
            old, new = _with_ends(old, "\r\n"), _with_ends(new, "\r\n")
        text = _replace_once(text, old, new, f"edit {number} of {len(edits)}")
    return text


def _with_ends(text: str, end: str) -> str:
    return re.sub(r"\r?\n", end, text)


def _replace_once(text: str, old: str, new: str, which: str) -> str:
    if not old:
        raise ToolFailure(f"{which}: oldText is empty; give the text to replace. Nothing was changed.")
    at = text.find(old)
    if at < 0:
        return _replace_lines(text, old, new, which)
    # Occurrences may overlap, which str.count leaves aside.
    if text.find(old, at + 1) >= 0:
        raise _ambiguous(which, max(text.count(old), 2))
    return text[:at] + new + text[at + len(old) :]


def _ambiguous(which: str, count: int) -> ToolFailure:
    return ToolFailure(
        f"{which}: oldText occurs {count} times; make it longer, so that it occurs once. Nothing was changed."
    )


def _replace_lines(text: str, old: str, new: str, which: str) -> str:
    """Replace the only run of lines that equals `old` when white space around each line is left away."""
    lines, wanted = text.splitlines(keepends=True), [line.strip() for line in old.splitlines()]
    found = _find_lines([line.strip() for line in lines], wanted) if any(wanted) else []
    if not found:
        raise ToolFailure(
            f"{which}: oldText is not in the file; read_file shows what is, and white space and line ends count within "
            "lines. Nothing was changed."
        )
    if len(found) > 1:
        raise _ambiguous(which, len(found))
    first, last = found[0], found[0] + len(wanted) - 1
    end = _end_of(lines[last])
    replacement = _indented(new, _indent_of(old), _indent_of(lines[first]))
    if replacement and not _end_of(replacement.splitlines(keepends=True)[-1]):
        replacement += end
    return "".join([*lines[:first], replacement, *lines[last + 1 :]])


def _find_lines(lines: list[str], wanted: list[str]) -> list[int]:
    size = len(wanted)
    starts = (at for at, line in enumerate(lines) if line == wanted[0])
    return [at for at in starts if lines[at : at + size] == wanted]


def _indent_of(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" \t"))]


def _end_of(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _indented(new: str, old_indent: str, indent: str) -> str:
    lines = new.splitlines(keepends=True)
    return "".join(indent + line.removeprefix(old_indent) if line.strip() else line for line in lines)


def unified_diff(before: str, after: str, name: str) -> str:
    """Return the change as git shows it, with three lines of context; empty where nothing changed."""
    old, new = _lines(before), _lines(after)
    first, last = _common(old, new)
    start = max(first - _CONTEXT, 0)
    keep = max(last - _CONTEXT, 0)
    old, new = old[start : len(old) - keep], new[start : len(new) - keep]
    lines = _hunks(old, new, start, (first - start, last - keep))
    if not lines:
        return ""
    return "".join([f"diff --git a/{name} b/{name}\n", f"--- a/{name}\n", f"+++ b/{name}\n", *map(_ended, lines)])


def fenced(diff: str) -> str:
    """Put a diff into a Markdown fence that nothing in it can close."""
    longest = max((len(run) for run in re.findall(r"`+", diff)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}diff\n{diff}{fence}\n"


def _lines(text: str) -> list[str]:
    # Only \n ends a line of a diff; str.splitlines knows others.
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _common(old: list[str], new: list[str]) -> tuple[int, int]:
    """Count the equal lines at the start, and those at the end that are not among them."""
    most = min(len(old), len(new))
    first = next((at for at in range(most) if old[at] != new[at]), most)
    rest = most - first
    last = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    return first, last


def _hunks(old: list[str], new: list[str], offset: int, around: tuple[int, int]) -> list[str]:
    if len(old) + len(new) > _MOST_COMPARED:
        return _one_hunk(old, new, offset, around)
    lines = list(difflib.unified_diff(old, new, n=_CONTEXT))[2:]
    return [_shifted(line, offset) if line.startswith("@@") else line for line in lines]


def _one_hunk(old: list[str], new: list[str], offset: int, around: tuple[int, int]) -> list[str]:
    before, after = around
    header = f"@@ -{_range(offset, len(old))} +{_range(offset, len(new))} @@\n"
    removed, added = old[before : len(old) - after], new[before : len(new) - after]
    context = old[:before], old[len(old) - after :]
    lines = [f" {line}" for line in context[0]] + [f"-{line}" for line in removed] + [f"+{line}" for line in added]
    return [header, *lines, *(f" {line}" for line in context[1])]


def _range(offset: int, count: int) -> str:
    return f"{offset + 1 if count else offset},{count}"


def _shifted(header: str, offset: int) -> str:
    return re.sub(r"([-+])(\d+)", lambda match: f"{match[1]}{int(match[2]) + offset}", header)


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
