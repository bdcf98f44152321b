"""What callers do to a running call: stop it, signal its processes, resize its terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallFinished, InvalidArgument

_LARGEST_SIDE: Final = 10_000
_LARGEST_SIGNAL: Final = 64

StopHandler = Callable[[], None]
SignalHandler = Callable[[int], None]


class CallControl:
    """What callers do to a running call, and the handlers that react to it."""

    id: str
    finished = False
    stop_reason: int | None = None
    signals_sent: frozenset[int] = frozenset()
    _pending_signals: tuple[int, ...] = ()
    """Signals that arrived before there was a handler."""
    _handlers: tuple[StopHandler | None, SignalHandler | None] = (None, None)
    _on_resize: Callable[[int, int], None] | None = None
    _room_waiters: tuple[Callable[[], None], ...] = ()
    _stop_timers: tuple[asyncio.TimerHandle, ...] = ()

    def stop_after(self, seconds: float | None) -> None:
        """Stop the call as timed out after so many seconds, unless it has finished by then; None: no limit."""
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self.stop, pb.END_REASON_TIMED_OUT)
            self._stop_timers += (timer,)

    @contextmanager
    def stopping(self, stop: StopHandler, signal: SignalHandler | None = None) -> Generator[None]:
        """Call `stop` while this is entered and the call is cancelled or times out, at once if it already is.

        Likewise `signal` with the number of each signal for the call's processes.
        """
        outer, self._handlers = self._handlers, (stop, signal)
        try:
            if self.stop_reason is not None:
                stop()
            while signal is not None and self._pending_signals:
                number, *later = self._pending_signals
                self._pending_signals = tuple(later)
                signal(number)
            yield
        finally:
            self._handlers = outer

    def stop(self, reason: int) -> None:
        """End the call: its result still follows, with the reason."""
        if not self.finished and self.stop_reason is None:
            self.stop_reason = reason
            self.wake_writers()
            if self._handlers[0] is not None:
                self._handlers[0]()

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

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when there may be room for output."""
        self._room_waiters += (wake,)

    def wake_writers(self) -> None:
        """Wake those that wait for room."""
        if self._room_waiters:
            waiters, self._room_waiters = self._room_waiters, ()
            for wake in waiters:
                wake()
