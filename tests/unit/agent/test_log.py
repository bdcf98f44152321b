"""The numbered events of one call, on their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.event_log import (
    DEFAULT_WINDOW,
    EVENT_COST,
    LARGEST_WINDOW,
    RESERVE,
    SMALLEST_WINDOW,
    CallLog,
    LogPosition,
)
from sandmeshd.agent.link.framing import encode_frame


def write(log: CallLog, size: int) -> None:
    """Keep an event with so many bytes of output."""
    log.append(pb.CallEvent(output=pb.Output(stream=pb.STREAM_STDOUT, data=bytes(size))), size)


def events(log: CallLog, after: int = 0, budget: int = 1 << 30) -> list[pb.CallEvent]:
    """Read the events after a sequence, as a caller who knows of nothing but its sequence."""
    pieces, _ = log.after(LogPosition(after), budget)
    return list(pb.CallEventBatch.FromString(b"".join(pieces)).events)


def test_a_window_is_held_to_its_bounds() -> None:
    windows = [CallLog(size).window for size in (0, 1, 200_000, 1 << 40)]
    assert windows == [DEFAULT_WINDOW, SMALLEST_WINDOW, 200_000, LARGEST_WINDOW]


def test_events_are_numbered_from_one_and_read_from_any_place() -> None:
    log = CallLog(SMALLEST_WINDOW)
    for size in (1, 2, 3):
        write(log, size)
    assert [(event.sequence, len(event.output.data)) for event in events(log)] == [(1, 1), (2, 2), (3, 3)]
    assert [event.sequence for event in events(log, after=2)] == [3]
    assert events(log, after=3) == []


def test_an_acknowledgement_frees_what_it_covers_and_no_more() -> None:
    log = CallLog(SMALLEST_WINDOW)
    for _ in range(4):
        write(log, 1000)
    full = log.room
    log.acknowledge(2)
    assert [event.sequence for event in events(log, after=2)] == [3, 4]
    assert log.room > full + 2000
    log.acknowledge(4)
    assert log.empty
    assert log.used == 0
    assert log.first == 5


def test_a_budget_cuts_a_batch_but_never_below_one_event() -> None:
    log = CallLog(SMALLEST_WINDOW)
    for _ in range(3):
        write(log, 1000)
    assert [event.sequence for event in events(log, budget=2500)] == [1, 2]
    assert [event.sequence for event in events(log, budget=1)] == [1]


def test_many_tiny_events_fill_a_window_too() -> None:
    log = CallLog(SMALLEST_WINDOW)
    count = 0
    while log.room > 0:
        write(log, 1)
        count += 1
    assert count < SMALLEST_WINDOW // EVENT_COST


def test_a_dropped_range_stands_as_one_event_with_its_last_number() -> None:
    log = CallLog(SMALLEST_WINDOW)
    for _ in range(10):
        log.drop_oldest(10_000 + EVENT_COST)
        write(log, 10_000)
    first, *others = events(log)
    kept = len(others)
    assert (first.dropped.first_sequence, first.dropped.last_sequence, first.sequence) == (1, 10 - kept, 10 - kept)
    assert first.dropped.bytes == (10 - kept) * 10_000
    assert [event.sequence for event in others] == list(range(11 - kept, 11))


def test_a_reader_misses_only_what_it_had_not_read() -> None:
    log = CallLog(SMALLEST_WINDOW)
    for _ in range(5):
        write(log, 10_000)
    _, place = log.after(LogPosition(0), 20_500)
    for _ in range(5):
        log.drop_oldest(10_000 + EVENT_COST)
        write(log, 10_000)
    pieces, _ = log.after(place, 1 << 30)
    first = pb.CallEventBatch.FromString(pieces[0]).events[0]
    assert place.sequence == 2
    assert first.dropped.first_sequence == 3
    assert first.dropped.bytes == (first.dropped.last_sequence - 2) * 10_000


@given(st.lists(st.tuples(st.integers(1, 20_000), st.booleans()), max_size=60))
def test_no_byte_is_lost_without_a_word_and_no_number_is_missing(steps: list[tuple[int, bool]]) -> None:
    log, place, written, received, last = CallLog(SMALLEST_WINDOW), LogPosition(0), 0, 0, 0
    for size, read in [*steps, (1, True)]:
        log.drop_oldest(size + EVENT_COST)
        write(log, size)
        written += size
        assert log.used <= SMALLEST_WINDOW - RESERVE + EVENT_COST
        if read:
            pieces, place = log.after(place, 1 << 30)
            for event in pb.CallEventBatch.FromString(b"".join(pieces)).events:
                assert (event.dropped.first_sequence or event.sequence) == last + 1
                last = event.sequence
                received += len(event.output.data) + event.dropped.bytes
    assert (received, last) == (written, log.last)


def test_what_was_acknowledged_is_dropped_for_who_asks_for_it_again() -> None:
    log = CallLog(SMALLEST_WINDOW)
    for _ in range(4):
        write(log, 1000)
    log.acknowledge(3)
    for after, missing in ((0, 3000), (1, 3000), (2, 3000)):  # where the caller was is not known in bytes
        first, *rest = events(log, after)
        assert (first.dropped.first_sequence, first.dropped.last_sequence) == (after + 1, 3)
        assert (first.sequence, first.dropped.bytes) == (3, missing)
        assert [event.sequence for event in rest] == [4]
    log.acknowledge(4)
    assert [event.dropped.last_sequence for event in events(log)] == [4]


def test_what_was_taken_leaves_its_room_to_newer_events_and_is_kept_until_they_need_it() -> None:
    log = CallLog(SMALLEST_WINDOW)
    while log.room > 1000:
        write(log, 1000)
    full = log.last
    log.take(full)
    assert log.room == log.capacity
    assert [event.sequence for event in events(log)] == list(range(1, full + 1))
    for _ in range(10):
        write(log, 1000)
    first, *rest = events(log)
    assert 9 <= first.dropped.last_sequence <= 11
    assert first.dropped.bytes == first.dropped.last_sequence * 1000
    assert [event.sequence for event in rest] == list(range(first.sequence + 1, full + 11))
    assert log.used <= log.capacity + EVENT_COST


def test_what_was_taken_holds_a_writer_again_when_its_subscriber_is_gone() -> None:
    log = CallLog(SMALLEST_WINDOW)
    for _ in range(5):
        write(log, 10_000)
    log.take(5)
    before = log.room
    log.untake()
    assert log.room < before - 50_000
    assert [event.sequence for event in events(log)] == [1, 2, 3, 4, 5]


def test_what_was_acknowledged_is_not_there_for_who_asks_from_the_start() -> None:
    log = CallLog(SMALLEST_WINDOW)
    log.append(pb.CallEvent(started=pb.Started()))
    assert log.has_after(LogPosition(0))
    log.acknowledge(1)
    assert not log.has_after(LogPosition(0))


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_383, 16_384, 70_000])
def test_an_event_of_any_size_reads_back_as_a_batch_of_it(size: int) -> None:
    log = CallLog(LARGEST_WINDOW)
    event = pb.CallEvent(content=pb.Content(json=bytes(size)))
    log.append(event, size)
    (piece,), _ = log.after(LogPosition(0), LARGEST_WINDOW)
    assert piece == pb.CallEventBatch(events=[event]).SerializeToString()


@pytest.mark.parametrize("size", [1, 100, 127, 128, 16_383, 16_384, 65_536])
def test_output_reads_back_as_it_was_written(size: int) -> None:
    log = CallLog(LARGEST_WINDOW)
    for stream in (pb.STREAM_STDOUT, pb.STREAM_STDERR):
        log.append_output(stream, bytes(size))
    assert events(log) == [
        pb.CallEvent(sequence=number, output=pb.Output(stream=stream, data=bytes(size)))
        for number, stream in ((1, pb.STREAM_STDOUT), (2, pb.STREAM_STDERR))
    ]


@pytest.mark.parametrize("size", [0, 127, 128, 20_000])
def test_a_frame_in_parts_reads_back_as_one(size: int) -> None:
    batch = [b"call", bytes(size), b"end"]
    message = agent_pb2.FromAgent(channel=3, last_sequence=4, final=True, end_reason=pb.END_REASON_EXITED)
    read = agent_pb2.FromAgent.FromString(b"".join(encode_frame(message, batch)))
    message.batch = b"".join(batch)
    assert read == message
