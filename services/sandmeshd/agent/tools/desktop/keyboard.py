"""Typing of text in any script.

xdotool maps a character that the layout lacks to a key for a moment, and programs that read the key later see another
mapping, so that characters are lost. Here each such character gets its own spare key, which stays.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

_SPARE: Final = re.compile(rb"^keycode +(\d+) =\s*$", re.MULTILINE)
_DELAY: Final = "12"
_LONGEST_STEP: Final = 24
"""So many characters are typed by one program: what a person waits for who takes over meanwhile."""
_SETTLE_SECONDS: Final = "0.3"
"""Between two batches: what was typed must have been read before its keys are mapped again."""

Run = Callable[..., Awaitable[bytes]]
"""Runs a program of the desktop."""


class Keyboard:
    """The keys of one X server; characters that its layout lacks are mapped when they are first typed."""

    def __init__(self) -> None:
        self._spare: list[str] = []
        self._mapped: dict[str, str] = {}

    def forget(self) -> None:
        """Forget all mappings: the X server is another one."""
        self._spare, self._mapped = [], {}

    async def type(self, run: Run, text: str) -> None:
        """Type a text."""
        if not self._spare and not text.isascii():
            self._spare = [each.decode() for each in _SPARE.findall(await run("xmodmap", "-pke"))]
        for number, batch in enumerate(_batches(text, max(1, len(self._spare)))):
            pause = ("sleep", _SETTLE_SECONDS) if number else ()
            if pause:
                await run("xdotool", *pause)
            await self._map(run, batch)
            for start in range(0, len(batch), _LONGEST_STEP):
                piece = batch[start : start + _LONGEST_STEP]
                await run("xdotool", "type", "--clearmodifiers", "--delay", _DELAY, "--", piece)

    async def _map(self, run: Run, batch: str) -> None:
        wanted = dict.fromkeys(char for char in batch if not char.isascii())
        missing = [char for char in wanted if char not in self._mapped]
        if len(self._mapped) + len(missing) > len(self._spare):
            self._mapped, missing = {}, list(wanted)
        used = set(self._mapped.values())
        free = [keycode for keycode in self._spare if keycode not in used]
        fresh = dict(zip(missing, free, strict=False))
        changes = [part for char, keycode in fresh.items() for part in ("-e", f"keycode {keycode} = U{ord(char):04x}")]
        if changes:
            await run("xmodmap", *changes)
            self._mapped.update(fresh)


def _batches(text: str, most: int) -> Iterator[str]:
    """Yield pieces of a text with at most so many different characters outside of ASCII each."""
    start, seen = 0, set[str]()
    for at, char in enumerate(text):
        if not char.isascii() and char not in seen:
            if len(seen) == most:
                yield text[start:at]
                start, seen = at, set[str]()
            seen.add(char)
    if text[start:]:
        yield text[start:]
