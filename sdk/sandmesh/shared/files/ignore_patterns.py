"""Patterns of paths that are left out, as a `.gitignore` has them (https://git-scm.com/docs/gitignore).

The standard library has none, and this runs in sandboxes too, which have no other packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sandmesh.errors import InvalidArgument

_MOST, _LONGEST = 1000, 4096


@dataclass(frozen=True)
class _IgnoreRule:
    pattern: re.Pattern[str]
    leaves_out: bool
    directories_only: bool


class IgnorePatterns:
    """Patterns in order, of which the last one that matches a path decides; `!` takes a path back."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Read patterns, one per line or item; empty lines and those that begin with `#` are comments.

        Raises:
            InvalidArgument: One cannot be read, or there are too many.
        """
        if isinstance(patterns, str):
            patterns = patterns.splitlines()
        lines = list(patterns)
        if len(lines) > _MOST or any(len(line) > _LONGEST for line in lines):
            message = f"exclude has at most {_MOST} patterns of {_LONGEST} characters"
            raise InvalidArgument(message, {"argument": "exclude"})
        self._rules = [rule for line in lines if (rule := _read(line)) is not None]

    def leave_out(self, path: str, *, is_directory: bool) -> bool:
        """Return whether a path below the directory is left out; what is below a directory that is, is too."""
        for rule in reversed(self._rules):
            if (is_directory or not rule.directories_only) and rule.pattern.fullmatch(path):
                return rule.leaves_out
        return False


def _read(line: str) -> _IgnoreRule | None:
    text = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if not text or text.startswith("#"):
        return None
    leaves_out = not text.startswith("!")
    text = text if leaves_out else text[1:]
    directories_only = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    anchored = "/" in text
    parts = text.lstrip("/").split("/")
    try:
        pattern = re.compile(_translate(parts, anchored), re.DOTALL)
    except re.error:
        raise InvalidArgument(f"{line!r} is not a pattern of paths to exclude", {"argument": "exclude"}) from None
    return _IgnoreRule(pattern, leaves_out, directories_only)


def _translate(parts: list[str], anchored: bool) -> str:
    written = "" if anchored else "(?:.*/)?"
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            written += ".+" if last else "(?:.*/)?"
        else:
            written += _part(part) + ("" if last else "/")
    return written


def _part(part: str) -> str:
    """Translate what is between two slashes, where `*` and `?` match no slash."""
    written, at = "", 0
    while at < len(part):
        sign = part[at]
        at += 1
        if sign == "*":
            written += "[^/]*"
        elif sign == "?":
            written += "[^/]"
        elif sign == "[" and (end := part.find("]", at + 1 + (part[at : at + 1] in ("!", "^")))) > 0:
            inner = part[at:end]
            negated = inner[:1] in ("!", "^")
            members = inner[negated:].replace("\\", "\\\\").replace("[", "\\[")
            written += f"(?!/)[{'^' if negated else ''}{members}]"
            at = end + 1
        elif sign == "\\" and at < len(part):
            written += re.escape(part[at])
            at += 1
        else:
            written += re.escape(sign)
    return written
