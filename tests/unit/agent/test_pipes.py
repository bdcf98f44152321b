"""The agent's side of the pipes that user code writes to."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence

import pytest

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import RunningCall, Timeouts
from sandmeshd.agent.calls.event_log import LogPosition
from sandmeshd.agent.processes.pipes import OutputPipe

PIECES = [bytes([number % 256]) * 4096 for number in range(64)]
MEGABYTE = 1 << 20


def outputs(call: RunningCall) -> list[bytes]:
    """Return what each output event of a call has."""
    pieces, _ = call.log.after(LogPosition(0), 2 * MEGABYTE)
    events = pb.CallEventBatch.FromString(b"".join(pieces)).events
    return [event.output.data for event in events if event.HasField("output")]


def write_all(fd: int, pieces: Sequence[bytes]) -> None:
    """Write pieces as a program does, with a pause in the middle, and end."""
    for number, piece in enumerate(pieces):
        if number == len(pieces) // 2:
            time.sleep(0.02)
        os.write(fd, piece)
    os.close(fd)


@pytest.mark.parametrize("gathers", [False, True])
async def test_bulk_output_that_is_gathered_comes_whole_and_in_order(gathers: bool) -> None:
    call = RunningCall(pb.CallStart(call_id="one", window_bytes=2 * MEGABYTE), Timeouts())
    pipe = OutputPipe(pb.STREAM_STDOUT, gathers=gathers)
    writer, pipe.writer = pipe.writer, -1
    thread = threading.Thread(target=write_all, args=(writer, PIECES))
    pipe.call = call
    pipe.watch()
    thread.start()
    async with asyncio.timeout(60):
        while not pipe.ended:  # noqa: ASYNC110 - it tells nobody of its end
            await asyncio.sleep(0)
    thread.join()
    pipe.close()
    assert b"".join(outputs(call)) == b"".join(PIECES)
    assert max(map(len, outputs(call))) >= len(PIECES[0])
