"""Words of a Dockerfile: split at blanks outside of quotes, with quotes removed and variables in place.

The rules are those of the Dockerfile reference (https://docs.docker.com/reference/dockerfile/#environment-replacement).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORM: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*|\d+|[@*#])(?P<sign>:?[-+?])?")


class WordError(ValueError):
    """A word is not one; the text says why."""


def raw_words(text: str, escape: str = "\\") -> list[str]:
    """Return the words of a text, with their quotes: blanks within quotes or after the escape character divide none."""
    words: list[str] = []
    word, quote, position = "", "", 0
    while position < len(text):
        letter = text[position]
        if letter == escape and quote != "'" and position + 1 < len(text):
            word += text[position : position + 2]
            position += 2
            continue
        if not quote and letter.isspace():
            words += [word] if word else []
            word = ""
        else:
            quote = _next_quote(quote, letter)
            word += letter
        position += 1
    return [*words, word] if word else words


def _next_quote(quote: str, letter: str) -> str:
    if quote:
        return "" if letter == quote else quote
    return letter if letter in "'\"" else ""


def expand(word: str, variables: Mapping[str, str], escape: str = "\\", *, quotes: bool = True) -> str:
    """Return a word with its variables in place and, with `quotes`, without its quotes.

    Raises:
        WordError: A quote or brace is not closed, a variable that must be set is not, or a form is not supported.
    """
    return _Expansion(word, variables, escape, quotes=quotes).whole()


class _Expansion:
    """One word on its way."""

    def __init__(self, word: str, variables: Mapping[str, str], escape: str, *, quotes: bool) -> None:
        self._word = word
        self._variables = variables
        self._escape = escape
        self._quotes = quotes
        self._position = 0

    def whole(self) -> str:
        result = self._until("")
        if self._position < len(self._word):
            raise WordError(f"{self._word!r} has a brace that is not opened")
        return result

    def _until(self, end: str) -> str:
        """Return what comes before `end`, which is one of a variable's or of double quotes; empty: to the end."""
        parts: list[str] = []
        while self._position < len(self._word):
            letter = self._word[self._position]
            if letter == end:
                return "".join(parts)
            parts.append(self._next(letter, in_double=end == '"'))
        if end:
            raise WordError(f"{self._word!r} has {end!r} missing")
        return "".join(parts)

    def _next(self, letter: str, *, in_double: bool) -> str:
        self._position += 1
        if letter == "$":
            return self._variable()
        if letter == self._escape:
            return self._escaped(in_double=in_double)
        if self._quotes and letter == '"':
            inner = self._until('"')
            self._position += 1
            return inner
        if self._quotes and letter == "'" and not in_double:
            return self._single()
        return letter

    def _escaped(self, *, in_double: bool) -> str:
        if self._position >= len(self._word):
            return self._escape if in_double or not self._quotes else ""
        letter = self._word[self._position]
        self._position += 1
        # Within double quotes it is kept before what needs no escape, as in a shell.
        kept = (in_double and letter not in ('"', "$", self._escape)) or (not self._quotes and letter != "$")
        return f"{self._escape}{letter}" if kept else letter

    def _single(self) -> str:
        end = self._word.find("'", self._position)
        if end < 0:
            raise WordError(f'{self._word!r} has "\'" missing')
        inner, self._position = self._word[self._position : end], end + 1
        return inner

    def _variable(self) -> str:
        if self._word[self._position : self._position + 1] == "{":
            self._position += 1
            return self._braced()
        found = _NAME.match(self._word, self._position)
        if found is None:
            return "$"
        self._position = found.end()
        return self._variables.get(found[0], "")

    def _braced(self) -> str:
        found = _FORM.match(self._word, self._position)
        if found is None:
            raise WordError(f"{self._word!r} has a form of a variable that is not supported")
        self._position = found.end()
        name, sign = found["name"], found["sign"] or ""
        if not sign and self._word[self._position : self._position + 1] != "}":
            raise WordError(f"{self._word!r} has a form of a variable that is not supported: use ${{{name}:-...}}")
        other = self._until("}")
        self._position += 1
        value = self._variables.get(name)
        is_set = bool(value) if sign.startswith(":") else value is not None
        if sign.endswith("-"):
            return (value or "") if is_set else other
        if sign.endswith("+"):
            return other if is_set else ""
        if sign.endswith("?") and not is_set:
            raise WordError(f"{name} must be set: {other or 'it is not'}")
        return value or ""
