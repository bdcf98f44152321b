"""What callers send to the processes of a running call: signals, and the sizes of their terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from sandmesh.errors import CallFinished, InvalidArgument

_LARGEST_SIDE: Final = 10_000
_LARGEST_SIGNAL: Final = 64

StopHandler = Callable[[], None]
SignalHandler = Callable[[int], None]


class CallSignals:
    """The signals and sizes that callers send to a running call's processes."""

    id: str
    finished = False
    signals_sent: frozenset[int] = frozenset()
    _pending_signals: tuple[int, ...] = ()
    """Signals that arrived before there was a handler."""
    _handlers: tuple[StopHandler | None, SignalHandler | None] = (None, None)
    _on_resize: Callable[[int, int], None] | None = None

    def signal(self, number: int) -> None:
        """Send a signal to the call's processes.

        Raises:
            CallFinished: The call has no processes any more.
            InvalidArgument: The signal does not exist.
        """
        if self.finished:
            raise CallFinished(f"call {self.id} has finished and accepts no signal")
        if not 0 < number <= _LARGEST_SIGNAL:
            raise InvalidArgument(f"{number} is not a signal: use 1 to {_LARGEST_SIGNAL}")
        self.signals_sent |= {number}
        if self._handlers[1] is not None:
            self._handlers[1](number)
        else:
            self._pending_signals += (number,)

    @contextmanager
    def resizing(self, resize: Callable[[int, int], None]) -> Generator[None]:
        """Call `resize` with rows and columns when the caller's terminal changes."""
        self._on_resize = resize
        try:
            yield
        finally:
            self._on_resize = None

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the call's terminal.

        Raises:
            CallFinished: The call has no terminal any more.
            InvalidArgument: The call never had one, or the size is out of range.
        """
        if self.finished:
            raise CallFinished(f"call {self.id} has finished and cannot be resized")
        if self._on_resize is None:
            raise InvalidArgument(f"call {self.id} has no terminal to resize: start the process with a pty")
        if not (0 < rows <= _LARGEST_SIDE and 0 < columns <= _LARGEST_SIDE):
            raise InvalidArgument(f"{rows} rows and {columns} columns are out of range: use 1 to {_LARGEST_SIDE} each")
        self._on_resize(rows, columns)
