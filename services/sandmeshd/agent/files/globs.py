"""Patterns of names and paths: * and ? and [...] within a name, ** over any number of directories, case left aside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Final

_SPECIAL: Final = frozenset("*?[")


class Pattern:
    """One pattern, matched against paths that are given as their names."""

    def __init__(self, text: str) -> None:
        """Read a pattern; one with a slash is about whole paths, else about a name."""
        self._text = text.casefold()
        self._parts = [_part(part) for part in self._text.strip("/").split("/") if part != "."]
        self._whole = "/" in self._text.strip("/") or self._text == "**"
        self._special = not _SPECIAL.isdisjoint(self._text)

    def finds(self, names: Sequence[str]) -> bool:
        """Return whether a search matches the path: a pattern without wildcards may be any part of the last name."""
        if self._special or self._whole:
            return self._fits(names)
        return self._text in names[-1].casefold()

    def excludes(self, names: Sequence[str]) -> bool:
        """Return whether the path is excluded: it matches, or its last name equals the text."""
        return self._fits(names)

    def _fits(self, names: Sequence[str]) -> bool:
        folded = [name.casefold() for name in names]
        return _match(folded if self._whole else folded[-1:], self._parts)


def _part(text: str) -> re.Pattern[str] | None:
    # fnmatch's expressions are atomic, so that no pattern takes exponential time.
    return None if text == "**" else re.compile(translate(text))


def _match(names: Sequence[str], parts: Sequence[re.Pattern[str] | None]) -> bool:
    """Match as shells match *: walk both, and on a mismatch let the last ** take one name more."""
    at = part = 0
    star, resume = -1, 0
    while at < len(names):
        wanted = parts[part] if part < len(parts) else _NOTHING
        if wanted is None:
            star, resume, part = part, at, part + 1
        elif wanted.match(names[at]):
            at, part = at + 1, part + 1
        elif star >= 0:
            resume += 1
            at, part = resume, star + 1
        else:
            return False
    return all(wanted is None for wanted in parts[part:])


_NOTHING: Final = re.compile(r"(?!)")
