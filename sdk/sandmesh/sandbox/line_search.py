"""Looks for a line in a process's output while it comes."""

from __future__ import annotations

import re

from sandmesh._calls.feed import Feed
from sandmesh.errors import InvalidArgument
from sandmesh.events import Output

LONGEST_LINE = 64 * 1024
# A terminal begins lines anew with a carriage return too.
ENDS = re.compile(r"[\r\n]+")


def compile_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """Compile a pattern.

    Raises:
        InvalidArgument: It cannot be; the message says where.
    """
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidArgument(f"the pattern {pattern!r} does not compile: {error}", {"argument": "pattern"}) from None


class Search:
    """Looks at each line once it grew, of standard output and standard error apart."""

    def __init__(self, pattern: re.Pattern[str], feed: Feed) -> None:
        self._compiled = pattern
        self.pattern = pattern.pattern
        self._feed = feed
        self._seen = 0
        self._lines = {"stdout": "", "stderr": ""}
        self._match: re.Match[str] | None = None

    def found(self) -> re.Match[str] | None:
        """Give the first match in what has come, None so far."""
        if self._match is None:
            events = self._feed.unread(self._seen)
            self._seen = self._feed.arrived
            for event in events:
                if isinstance(event, Output) and self._match is None:
                    self._look(event)
        return self._match

    def _look(self, event: Output) -> None:
        text = self._lines[event.stream] + event.text
        *whole, rest = ENDS.split(text)
        for line in (*whole, rest):
            self._match = self._compiled.search(line)
            if self._match is not None:
                return
        self._lines[event.stream] = rest[-LONGEST_LINE:]
