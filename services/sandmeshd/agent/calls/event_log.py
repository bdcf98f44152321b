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
_MOST_GONE: Final = 64


class _LoggedEvent(NamedTuple):
    sequence: int
    piece: bytes | Extent
    before: int
    """How many bytes of output the events before this one carry."""
    output: int
    """How many the events up to and including this one carry."""

    @property
    def cost(self) -> int:
        """How many bytes of the window it takes."""
        return 0 if isinstance(self.piece, Extent) else len(self.piece) + EVENT_COST


class LogPosition(NamedTuple):
    """A reader's position: the last event that it has, and the bytes of output up to there (0: unknown)."""

    sequence: int
    output: int = 0


class CallLog:
    """The events of one call from the first that is not acknowledged: the oldest on disk, the others in memory.

    Each is kept as the bytes of a CallEventBatch that holds only it: joined, such bytes are one batch of all of them.
    A subscriber may take events without acknowledging them. They stay for a replay until newer ones need the room.
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
        self.unread = 0
        """How many of them belong to events that no subscriber took."""
        self.last = 0
        """The sequence of the newest event."""
        self._entries: list[_LoggedEvent] = []
        self._head = 0
        self._untaken = 0
        """The index of the oldest event that no subscriber took."""
        self._acknowledged = LogPosition(0)
        self._output = 0

    @property
    def room(self) -> int:
        """How many more bytes of output fit into the window, or onto disk while the log spills."""
        room = self.capacity - self.unread
        if not self.spilling or self.spill is None:
            return room
        oldest = self._entries[self._memory].cost if self._memory < len(self._entries) else 0
        return max(room, self.spill.room - oldest - EVENT_COST)

    @property
    def empty(self) -> bool:
        """Whether everything is acknowledged."""
        return self._head == len(self._entries)

    @property
    def first(self) -> int:
        """The sequence of the oldest kept event, that of the next one if there is none."""
        return self.last + 1 if self.empty else self._entries[self._head].sequence

    def has_after(self, place: LogPosition) -> bool:
        """Return whether there is an event after a place that was not acknowledged."""
        missed = self._acknowledged.sequence < self.first - 1 > place.sequence
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
        if self.used + len(piece) > self.capacity:
            self._evict(len(piece))
        self._entries.append(_LoggedEvent(self.last, piece, self._output, self._output + output))
        self._output += output
        self.used += len(piece) + EVENT_COST
        self.unread += len(piece) + EVENT_COST

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
        if self.first - 1 <= sequence:
            self._acknowledged = LogPosition(self.first - 1, self._before)
        self._compact()

    def take(self, sequence: int) -> None:
        """Note that a subscriber took all events up to and including this one; they are kept while there is room."""
        while self._untaken < len(self._entries) and self._entries[self._untaken].sequence <= sequence:
            self.unread -= self._entries[self._untaken].cost
            self._untaken += 1

    def untake(self) -> None:
        """Forget what was taken: a subscriber that went away may lack any of it."""
        self._untaken, self.unread = self._head, self.used

    def drop_spilled(self) -> None:
        """Drop what is on disk."""
        while self._head < self._memory:
            self._pop()
        self._compact()

    def drop_oldest(self, needed: int) -> None:
        """Make room for `needed` bytes of output by dropping the oldest events; readers get a Dropped event for them.

        It has the sequence of the last one that is missing, so that the numbers stay without gaps.
        """
        while self.room < needed and not self.empty:
            self._pop()
        self._compact()

    def after(self, place: LogPosition, budget: int) -> tuple[list[bytes], LogPosition]:
        """Return the events after a place as pieces of a batch, and the place after the last of them.

        The first is returned whatever its size, more only within `budget` bytes. A Dropped event stands for those that
        are no longer kept.
        """
        pieces: list[bytes] = []
        first = self._entries[self._head].sequence if self._head < len(self._entries) else self.last + 1
        if place.sequence < first - 1:
            known = self._acknowledged.output if place.sequence >= self._acknowledged.sequence else 0
            kept = LogPosition(first - 1, self._before)
            pieces.append(_dropped(place, kept, kept.output - max(known, place.output)))
            place = kept
        index = self._head + place.sequence - first + 1
        for entry in self._entries[index : index + _MOST_ENTRIES]:
            piece = entry.piece
            budget -= piece.size if isinstance(piece, Extent) else len(piece)
            if pieces and budget < 0:
                break
            pieces.append(_read(piece, self.spill) if isinstance(piece, Extent) else piece)
            place = LogPosition(entry.sequence, entry.output)
        return pieces, place

    @property
    def _memory(self) -> int:
        """The index of the oldest event that is in memory."""
        return self._head + (self.spill.pieces if self.spill is not None else 0)

    @property
    def _before(self) -> int:
        """How many bytes of output the events carry that are no longer kept."""
        return self._output if self.empty else self._entries[self._head].before

    def _evict(self, needed: int) -> None:
        """Make room in memory for a piece: the oldest events go to disk, or altogether where that has no room.

        Those that no other subscriber will get stay in memory unless the log spills.
        """
        while self.used + needed > self.capacity and self._memory < len(self._entries):
            keeps = self._memory >= self._untaken
            if keeps and not self.spilling:
                break
            if not self._spill_oldest():
                if keeps:
                    break
                self._pop()
        self._compact()

    def _spill_oldest(self) -> bool:
        """Move the oldest event in memory to disk."""
        index, spill = self._memory, self.spill
        entry = self._entries[index]
        if spill is None or isinstance(entry.piece, Extent):
            return False
        while not self.spilling and spill.half_full and self._head < min(self._untaken, index):
            self._pop()
        extent = spill.append(entry.piece)
        if extent is None:
            return False
        self._entries[index] = entry._replace(piece=extent)
        self.used -= entry.cost
        if index >= self._untaken:
            self.unread -= entry.cost
        return True

    def _pop(self) -> None:
        entry = self._entries[self._head]
        self._entries[self._head] = _GONE  # which releases its memory before it leaves the list
        self.used -= entry.cost
        if self._head >= self._untaken:
            self.unread -= entry.cost
        if isinstance(entry.piece, Extent) and self.spill is not None:
            self.spill.free(entry.piece)
        self._head += 1
        self._untaken = max(self._untaken, self._head)

    def _compact(self) -> None:
        if self._head > _MOST_GONE or self.empty:
            del self._entries[: self._head]
            self._untaken -= self._head
            self._head = 0


def _dropped(place: LogPosition, kept: LogPosition, size: int) -> bytes:
    """Return the Dropped event for a reader at one place where the events up to another are no longer kept."""
    dropped = pb.Dropped(first_sequence=place.sequence + 1, last_sequence=kept.sequence, bytes=size)
    return pb.CallEventBatch(events=(pb.CallEvent(sequence=kept.sequence, dropped=dropped),)).SerializeToString()


def _read(extent: Extent, spill: Spill | None) -> bytes:
    return spill.read(extent) if spill is not None else b""


_GONE: Final = _LoggedEvent(0, b"", 0, 0)
