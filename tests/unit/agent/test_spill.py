"""Output on disk while nobody is attached: whole, in order, bounded, and without a name."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import Timeouts
from sandmeshd.agent.calls.event_log import SMALLEST_WINDOW, EventLog, Place
from sandmeshd.agent.calls.spill import MOST_PIECES, Disk, Extent, Spill

from .client import connect
from .test_link import LEASE, MakeWorld, make_world, start

__all__ = ["make_world"]

MOST = 1000


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
    log = EventLog(SMALLEST_WINDOW, Spill(Disk(str(tmp_path)), 100_000))
    log.spilling = True
    for number in range(40):
        log.drop_oldest(5000)
        data = bytes([number]) * 4000
        log.append(pb.CallEvent(output=pb.Output(stream=pb.STREAM_STDOUT, data=data)), len(data))
    pieces, _ = log.after(Place(0), 1 << 30)
    dropped, *rest = pb.CallEventBatch.FromString(b"".join(pieces)).events
    assert dropped.dropped.bytes + sum(len(event.output.data) for event in rest) == 160_000
    assert [event.output.data[0] for event in rest] == list(range(rest[0].output.data[0], 40))
    assert len(rest) > 30
    log.close()


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
