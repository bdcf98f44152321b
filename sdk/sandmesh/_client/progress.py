"""Progress of something long on a terminal, or as lines where there is none."""

from __future__ import annotations

from typing import TextIO

WIDTH = 24


class ProgressLine:
    """Shows (message, fraction) on one line that it overwrites; a fraction below 0 is one that cannot be told."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._last = ""

    def show(self, message: str, fraction: float) -> None:
        """Show how far it is."""
        if self._terminal:
            self._last = f"{_bar(fraction)} {message}"
            self._write(f"\r\x1b[2K{self._last}")
        elif message != self._last:
            self._last = message
            self._write(f"sandmesh: {message}\n")

    def __enter__(self) -> ProgressLine:
        """Return itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Take the line away."""
        if self._terminal and self._last:
            self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _bar(fraction: float) -> str:
    if fraction < 0:
        return "sandmesh:"
    done = round(min(fraction, 1.0) * WIDTH)
    return f"sandmesh: [{'#' * done}{'.' * (WIDTH - done)}] {min(fraction, 1.0):4.0%}"
