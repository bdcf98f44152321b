"""Output on disk while nobody is attached: whole, in order, bounded, and without a name."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import Timeouts
from sandmeshd.agent.calls.event_log import EVENT_COST, SMALLEST_WINDOW, CallLog, LogPosition
from sandmeshd.agent.calls.spill import MOST_OF_ALL, MOST_PIECES, Disk, Extent, Spill

from .client import connect
from .test_link import LEASE, MakeWorld, make_world, start

__all__ = ["make_world"]

MOST = 1000


class WatchedDisk(Disk):
    """A disk that reports when space was given back."""

    def __init__(self, directory: str) -> None:
        self.freed = asyncio.Event()
        super().__init__(directory)
        self.freed.clear()

    def __setattr__(self, name: str, value: object) -> None:
        if name == "left" and value == MOST_OF_ALL:
            self.freed.set()
        super().__setattr__(name, value)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=60))
def test_pieces_come_back_as_they_were_around_the_ring(steps: list[tuple[bool, int]]) -> None:
    disk = Disk("/tmp")
    spill = Spill(disk, MOST)
    kept: deque[tuple[Extent, bytes]] = deque()
    for number, (adds, size) in enumerate(steps):
        if adds:
            piece = bytes([number % 256]) * size
            extent = spill.append(piece)
            assert (extent is None) == (sum(len(each) for _, each in kept) + size > MOST)
            if extent is not None:
                kept.append((extent, piece))
        elif kept:
            spill.free(kept.popleft()[0])
        assert [spill.read(extent) for extent, _ in kept] == [piece for _, piece in kept]
    before = disk.left
    spill.close()
    assert disk.left == before + (MOST if kept else 0)


def test_what_all_calls_spill_is_bounded(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path), left=150)
    one, two = Spill(disk, 100), Spill(disk, 100)
    assert one.append(bytes(100)) is not None
    assert two.append(bytes(51)) is None
    assert two.append(bytes(50)) is not None
    assert list(tmp_path.iterdir()) == []


def test_many_tiny_pieces_are_bounded_too(tmp_path: Path) -> None:
    spill = Spill(Disk(str(tmp_path)))
    assert all(spill.append(b"x") for _ in range(MOST_PIECES))
    assert spill.append(b"x") is None
    spill.close()


def test_where_nothing_can_be_written_nothing_is_spilled() -> None:
    assert Spill(Disk("/nonexistent")).append(b"x") is None
    assert Spill(None).append(b"x") is None


def test_the_oldest_goes_from_disk_as_from_memory(tmp_path: Path) -> None:
    log = CallLog(SMALLEST_WINDOW, Spill(Disk(str(tmp_path)), 100_000))
    log.spilling = True
    for number in range(40):
        log.drop_oldest(5000)
        data = bytes([number]) * 4000
        log.append(pb.CallEvent(output=pb.Output(stream=pb.STREAM_STDOUT, data=data)), len(data))
    pieces, _ = log.after(LogPosition(0), 1 << 30)
    dropped, *rest = pb.CallEventBatch.FromString(b"".join(pieces)).events
    assert dropped.dropped.bytes + sum(len(event.output.data) for event in rest) == 160_000
    assert [event.output.data[0] for event in rest] == list(range(rest[0].output.data[0], 40))
    assert len(rest) > 30
    log.close()


@given(st.lists(st.tuples(st.integers(1, 9000), st.sampled_from(["take", "acknowledge", "go", "read"])), max_size=80))
def test_no_byte_is_lost_without_a_word_whoever_reads_where(steps: list[tuple[int, str]]) -> None:
    log = CallLog(SMALLEST_WINDOW, Spill(Disk("/tmp"), 60_000))
    written, place, known = 0, LogPosition(0), LogPosition(0)
    for size, act in steps:
        data = size if log.room >= size + EVENT_COST else 0
        if data:
            log.append(pb.CallEvent(output=pb.Output(stream=pb.STREAM_STDOUT, data=bytes(data))), data)
            written += data
        if act == "go":
            log.spilling = not log.spilling
            log.untake()
            place = known  # the next subscriber begins where the last one acknowledged
        else:
            _, place = log.after(place, 20_000)
        if act == "take" and not log.spilling:
            log.take(place.sequence)
        elif act == "acknowledge":
            log.acknowledge(place.sequence)
            known = place
        assert log.used <= log.capacity + 2 * EVENT_COST + 9000
        found, at = pb.CallEventBatch.FromString(b"".join(log.after(known, 1 << 30)[0])).events, known.sequence
        for event in found:
            assert (event.dropped.first_sequence or event.sequence) == at + 1
            at = event.sequence
        assert at == log.last
        assert known.output + sum(len(one.output.data) + one.dropped.bytes for one in found) == written
    log.close()


async def test_what_a_dead_client_had_been_sent_is_replayed_whole(make_world: MakeWorld, tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    world = await make_world(timeouts=Timeouts(reattach=600), disk=disk)
    async with asyncio.timeout(20):
        async with connect(world.path) as client:
            call = start(client, "write 6000000", window_bytes=64 << 10)
            while (await call.take()) < 4_000_000:
                assert world.dispatcher.calls.get(call.call_id).log.used < 70_000
        async with connect(world.path) as client:
            ended = await client.attach(call.call_id, after=1, fencing_token=LEASE).end()
    assert len(ended.stdout) == 6_000_000
    assert [event.sequence for event in ended.events] == list(range(2, len(ended.events) + 2))


async def test_of_a_long_output_that_was_sent_the_newest_half_of_the_disk_is_kept(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = await make_world(timeouts=Timeouts(reattach=600), disk=Disk(str(tmp_path), left=2_000_000))
    async with asyncio.timeout(20):
        async with connect(world.path) as client:
            call = start(client, "write 9000000", window_bytes=64 << 10)
            while (await call.take()) < 8_000_000:
                pass
        async with connect(world.path) as client:
            ended = await client.attach(call.call_id, fencing_token=LEASE).end()
    first, *rest = ended.events
    assert first.dropped.first_sequence == 1
    assert first.dropped.bytes + len(ended.stdout) == 9_000_000
    assert len(ended.stdout) > 1_900_000
    assert [event.sequence for event in rest] == list(range(first.sequence + 1, ended.events[-1].sequence + 1))


async def test_the_disk_is_free_a_grace_after_the_result_was_sent(make_world: MakeWorld, tmp_path: Path) -> None:
    disk = WatchedDisk(str(tmp_path))
    world = await make_world(timeouts=Timeouts(reattach=0.2), disk=disk)
    async with asyncio.timeout(20):
        async with connect(world.path) as client:
            call = start(client, "write 3000000", window_bytes=64 << 10)
            while (await call.take()) < 3_000_000:
                assert not disk.freed.is_set()
            await disk.freed.wait()
        async with connect(world.path) as client:
            ended = await client.attach(call.call_id, fencing_token=LEASE).end()
    assert ended.events[0].dropped.bytes + len(ended.stdout) == 3_000_000
    assert ended.result.exit_code == 0


async def test_a_call_that_nobody_is_attached_to_goes_on_and_is_read_whole(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = await make_world(timeouts=Timeouts(reattach=600), disk=Disk(str(tmp_path)))
    async with asyncio.timeout(20):
        async with connect(world.path) as client:
            call = start(client, "write 3000000", window_bytes=64 << 10)
            await call.batch()
        await world.finished.wait()
        assert world.dispatcher.calls.get(call.call_id).log.used < 70_000
        async with connect(world.path) as client:
            ended = await client.attach(call.call_id, fencing_token=LEASE).end()
    assert len(ended.stdout) == 3_000_000
    assert [event.sequence for event in ended.events] == list(range(1, len(ended.events) + 1))
