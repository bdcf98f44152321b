"""The numbered events of one call, kept until they are acknowledged."""

from __future__ import annotations

from typing import Final, NamedTuple

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.spill import Extent, Spill
from sandmeshd.agent.calls.wire import batch_of, batch_of_output

SMALLEST_WINDOW: Final = 64 << 10
DEFAULT_WINDOW: Final = 1 << 20
LARGEST_WINDOW: Final = 64 << 20
RESERVE: Final = 8 << 10
"""What output leaves free of a window, so that the events about the call itself (started, result) always fit."""
EVENT_COST: Final = 96
"""What an event takes beside its bytes: many tiny ones fill a window too."""


class _Kept(NamedTuple):
    sequence: int
    piece: bytes | Extent
    before: int
    """How many bytes of output the events before it carried, and"""
    output: int
    """those up to and with it."""


class _Gap(NamedTuple):
    """The dropped events: their sequences, and the bytes of output before and up to them."""

    first: int
    last: int
    before: int
    output: int


class Place(NamedTuple):
    """How far a reader is: the last event it has, and the bytes of output up to there (0: not known)."""

    sequence: int
    output: int = 0


def hold_window(asked: int) -> int:
    """Give the window for what a caller asked for: 0 is the default, others are held to the bounds."""
    return min(max(asked, SMALLEST_WINDOW), LARGEST_WINDOW) if asked else DEFAULT_WINDOW


class EventLog:
    """The events of one call from the first that is not acknowledged.

    Each is kept as the bytes of a CallEventBatch that holds it alone: joined, such bytes are one batch of all of them.
    """

    def __init__(self, window: int, spill: Spill | None = None) -> None:
        self.window = window
        self.spilling = False
        """Whether what does not fit goes to disk: so it is while nobody is attached."""
        self._spill = spill or Spill(None)
        self.used = 0
        """Bytes that the kept events take."""
        self.last = 0
        """The sequence of the newest event."""
        self._events: list[_Kept] = []
        self._head = 0
        self._freed = 0
        self._output = 0
        self._gap: _Gap | None = None

    @property
    def room(self) -> int:
        """How many more bytes of output fit into the window, or on disk where that is asked for."""
        room = self._memory
        return max(room, self._spill.room - EVENT_COST) if self.spilling else room

    @property
    def _memory(self) -> int:
        return self.window - RESERVE - EVENT_COST - self.used

    @property
    def empty(self) -> bool:
        """Whether everything is acknowledged."""
        return self._head == len(self._events)

    @property
    def first(self) -> int:
        """The sequence of the oldest kept event, that of the next one if there is none."""
        return self.last + 1 if self.empty else self._events[self._head].sequence

    def has_after(self, place: Place) -> bool:
        """Say whether there is something to give after a place; what was acknowledged is not."""
        missed = self._gap is not None and place.sequence < self._gap.last
        return missed or (not self.empty and place.sequence < self.last)

    def append(self, event: pb.CallEvent, output: int = 0) -> None:
        """Number an event and keep it; `output` is how many bytes of output it carries."""
        event.sequence = self.last + 1
        self._append(batch_of(event, output), output)

    def append_output(self, stream: int, data: bytes) -> None:
        """Number what a process wrote and keep it."""
        self._append(batch_of_output(self.last + 1, stream, data), len(data))

    def _append(self, piece: bytes, output: int) -> None:
        self.last += 1
        extent = self._spill.append(piece) if self.spilling and self._memory < len(piece) else None
        self._events.append(_Kept(self.last, extent or piece, self._output, self._output + output))
        self._output += output
        self.used += 0 if extent else len(piece) + EVENT_COST

    def close(self) -> None:
        """Let go of what is on disk; nothing is asked for any more."""
        self._spill.close()

    def acknowledge(self, sequence: int) -> None:
        """Let go of all events up to and with this one."""
        while not self.empty and self._events[self._head].sequence <= sequence:
            self._pop()
        if self._gap is not None and self._gap.last <= sequence:
            self._gap = None
        self._compact()

    def drop_oldest(self, needed: int) -> None:
        """Make room for `needed` bytes of output: the oldest events go, and readers get a Dropped event for them.

        It has the sequence of the last one that is missing, so that the numbers stay without gaps.
        """
        while self.room < needed and not self.empty:
            gone = self._pop()
            gap = self._gap or _Gap(gone.sequence, 0, gone.before, 0)
            self._gap = gap._replace(last=gone.sequence, output=gone.output)
        self._compact()

    def after(self, place: Place, budget: int) -> tuple[list[bytes], Place]:
        """Give the events after a place as pieces of a batch, and the place after the last one of them.

        The first is given whatever its size, more only within `budget` bytes.
        """
        pieces: list[bytes] = []
        if self._gap is not None and place.sequence < self._gap.last:
            pieces.append(_dropped(self._gap, place))
            place = Place(self._gap.last, self._gap.output)
        index = self._head + max(0, place.sequence - self.first + 1)
        for kept in self._events[index : index + 1024]:
            size = kept.piece.size if isinstance(kept.piece, Extent) else len(kept.piece)
            budget -= size
            if pieces and budget < 0:
                break
            pieces.append(self._spill.read(kept.piece) if isinstance(kept.piece, Extent) else kept.piece)
            place = Place(kept.sequence, kept.output)
        return pieces, place

    def _pop(self) -> _Kept:
        kept = self._events[self._head]
        self._head += 1
        if isinstance(kept.piece, Extent):
            self._spill.free(kept.piece)
        else:
            self.used -= len(kept.piece) + EVENT_COST
            self._freed += len(kept.piece)
        return kept

    def _compact(self) -> None:
        # What was let go holds its memory until it leaves the list; a large head leaves at once.
        if self._head > 64 or self.empty or self._freed > self.window // 4:
            del self._events[: self._head]
            self._head = 0
            self._freed = 0


def _dropped(gap: _Gap, place: Place) -> bytes:
    """Say what a reader misses of the gap; what it had before is not missing."""
    first, seen = max(gap.first, place.sequence + 1), max(gap.before, place.output)
    dropped = pb.Dropped(first_sequence=first, last_sequence=gap.last, bytes=gap.output - seen)
    return batch_of(pb.CallEvent(sequence=gap.last, dropped=dropped))
