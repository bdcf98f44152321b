"""The numbered events of one call, kept until they are acknowledged.

Events with much data are encoded by hand, which copies the data at most once: the messages' own methods copy it for
each message that holds another. See https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.shared.bulk_frames import LEAST, field, tag
from sandmeshd.agent.calls.spill import Extent, Spill

_EVENTS: Final = tag(pb.CallEventBatch.DESCRIPTOR, "events")
_OUTPUT: Final = tag(pb.CallEvent.DESCRIPTOR, "output")
_DATA: Final = tag(pb.Output.DESCRIPTOR, "data")

_MOST_ENTRIES: Final = 1024
"""Of one read."""
SMALLEST_WINDOW: Final = 64 << 10
DEFAULT_WINDOW: Final = 1 << 20
LARGEST_WINDOW: Final = 64 << 20
RESERVE: Final = 8 << 10
"""Bytes of a window that output may not use, so that the events about the call itself (started, result) always fit."""
EVENT_COST: Final = 96
"""What an event counts besides its bytes: many tiny ones fill a window too."""


class _Entry(NamedTuple):
    sequence: int
    piece: bytes | Extent
    before: int
    """How many bytes of output the events before this one carry."""
    output: int
    """How many the events up to and including this one carry."""


class _Gap(NamedTuple):
    """The dropped events: their first and last sequence, and the bytes of output before and up to them."""

    first: int
    last: int
    before: int
    output: int


class Place(NamedTuple):
    """A reader's position: the last event that it has, and the bytes of output up to there (0: unknown)."""

    sequence: int
    output: int = 0


class EventLog:
    """The events of one call from the first that is not acknowledged.

    Each is kept as the bytes of a CallEventBatch that holds it alone: joined, such bytes are one batch of all of them.
    """

    def __init__(self, window: int, spill: Spill | None = None) -> None:
        """Create an empty log; a window of 0 bytes is the default one, others are held to the bounds."""
        self.window = min(max(window, SMALLEST_WINDOW), LARGEST_WINDOW) if window else DEFAULT_WINDOW
        self.capacity = self.window - RESERVE - EVENT_COST
        """How many bytes of the window output may use."""
        self.spilling = False
        """Whether events that do not fit go to disk, as they do while there is no subscriber."""
        self.spill = spill
        self.used = 0
        """Bytes that the kept events take of the window."""
        self.last = 0
        """The sequence of the newest event."""
        self._entries: list[_Entry] = []
        self._head = 0
        self._freed = 0
        self._output = 0
        self._gap: _Gap | None = None

    @property
    def room(self) -> int:
        """How many more bytes of output fit into the window, or onto disk while the log spills."""
        room = self.capacity - self.used
        return max(room, self.spill.room - EVENT_COST) if self.spilling and self.spill is not None else room

    @property
    def empty(self) -> bool:
        """Whether everything is acknowledged."""
        return self._head == len(self._entries)

    @property
    def first(self) -> int:
        """The sequence of the oldest kept event, that of the next one if there is none."""
        return self.last + 1 if self.empty else self._entries[self._head].sequence

    def has_after(self, place: Place) -> bool:
        """Return whether there is an event after a place that was not acknowledged."""
        missed = self._gap is not None and place.sequence < self._gap.last
        return missed or (self._head < len(self._entries) and place.sequence < self.last)

    def append(self, event: pb.CallEvent, output: int = 0, *fields: bytes) -> None:
        """Number an event and keep it; `output` is how many bytes of output it carries.

        `fields` are the parts of the event that are already encoded.
        """
        self.last += 1
        event.sequence = self.last
        if output < LEAST:
            piece = pb.CallEventBatch(events=(event,)).SerializeToString()
        else:
            piece = b"".join(field(_EVENTS, [event.SerializeToString(), *fields]))
        extent = None
        if self.spilling and self.spill is not None and self.capacity - self.used < len(piece):
            extent = self.spill.append(piece)
        self._entries.append(_Entry(self.last, extent or piece, self._output, self._output + output))
        self._output += output
        self.used += 0 if extent else len(piece) + EVENT_COST

    def append_output(self, stream: int, data: bytes) -> None:
        """Number what a process wrote and keep it."""
        output = pb.Output(stream=stream)  # type: ignore[arg-type]  # typeshed has no open enums
        if len(data) < LEAST:
            output.data = data
            self.append(pb.CallEvent(output=output), len(data))
        else:
            encoded = [output.SerializeToString(), *field(_DATA, [data])]
            self.append(pb.CallEvent(), len(data), *field(_OUTPUT, encoded))

    def close(self) -> None:
        """Release what is on disk; the log is read no more."""
        if self.spill is not None:
            self.spill.close()

    def acknowledge(self, sequence: int) -> None:
        """Release all events up to and including this one."""
        while not self.empty and self._entries[self._head].sequence <= sequence:
            self._pop()
        if self._gap is not None and self._gap.last <= sequence:
            self._gap = None
        self._compact()

    def drop_oldest(self, needed: int) -> None:
        """Make room for `needed` bytes of output by dropping the oldest events; readers get a Dropped event for them.

        It has the sequence of the last one that is missing, so that the numbers stay without gaps.
        """
        while self.room < needed and not self.empty:
            entry = self._pop()
            gap = self._gap or _Gap(entry.sequence, 0, entry.before, 0)
            self._gap = gap._replace(last=entry.sequence, output=entry.output)
        self._compact()

    def after(self, place: Place, budget: int) -> tuple[list[bytes], Place]:
        """Return the events after a place as pieces of a batch, and the place after the last of them.

        The first is returned whatever its size, more only within `budget` bytes.
        """
        pieces: list[bytes] = []
        if self._gap is not None and place.sequence < self._gap.last:
            pieces.append(_dropped(self._gap, place))
            place = Place(self._gap.last, self._gap.output)
        first = self._entries[self._head].sequence if self._head < len(self._entries) else self.last + 1
        index = self._head + max(0, place.sequence - first + 1)
        for entry in self._entries[index : index + _MOST_ENTRIES]:
            piece = entry.piece
            budget -= piece.size if isinstance(piece, Extent) else len(piece)
            if pieces and budget < 0:
                break
            pieces.append(self._read(piece) if isinstance(piece, Extent) else piece)
            place = Place(entry.sequence, entry.output)
        return pieces, place

    def _read(self, extent: Extent) -> bytes:
        return self.spill.read(extent) if self.spill is not None else b""

    def _pop(self) -> _Entry:
        entry = self._entries[self._head]
        self._head += 1
        if not isinstance(entry.piece, Extent):
            self.used -= len(entry.piece) + EVENT_COST
            self._freed += len(entry.piece)
        elif self.spill is not None:
            self.spill.free(entry.piece)
        return entry

    def _compact(self) -> None:
        # A released piece holds its memory until it leaves the list, so a large head is removed at once.
        if self._head > 64 or self.empty or self._freed > self.window // 4:
            del self._entries[: self._head]
            self._head = 0
            self._freed = 0


def _dropped(gap: _Gap, place: Place) -> bytes:
    """Return the Dropped event for a reader; what it had before is not missing."""
    first, received = max(gap.first, place.sequence + 1), max(gap.before, place.output)
    dropped = pb.Dropped(first_sequence=first, last_sequence=gap.last, bytes=gap.output - received)
    return pb.CallEventBatch(events=(pb.CallEvent(sequence=gap.last, dropped=dropped),)).SerializeToString()
