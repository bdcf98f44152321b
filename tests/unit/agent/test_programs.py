"""What a call hears of its program, and in which order."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import RunningCall, Timeouts
from sandmeshd.agent.calls.event_log import LogPosition
from sandmeshd.agent.processes.namespaces import control_sockets
from sandmeshd.agent.processes.programs import Program, Programs
from sandmeshd.agent.processes.spawner import ProcessLimits, ProcessSpawner

TURNS = 20
"""Of the loop: more than what is there to be read waits."""


@contextmanager
def programs() -> Generator[tuple[Programs, socket.socket]]:
    """Return what runs programs, and the place of its zygote."""
    ours, theirs = control_sockets()
    processes = ProcessSpawner(ours, ProcessLimits())
    made = Programs(processes, "/", {})
    with theirs:
        try:
            yield made, theirs
        finally:
            made.close()
            processes.close()


async def turn() -> None:
    """Wait until the loop has handled all that arrived."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def say(zygote: socket.socket, **report: Any) -> None:
    """Report as a zygote."""
    zygote.send(json.dumps(report).encode())


@pytest.mark.parametrize("terminal", [None, (24, 80)])
async def test_that_it_started_is_told_before_what_it_wrote(terminal: tuple[int, int] | None) -> None:
    async with asyncio.timeout(60):
        with programs() as (made, zygote):
            call = RunningCall(pb.CallStart(call_id="one"), Timeouts())
            running = asyncio.create_task(made.run(Program(["echo"], terminal=terminal), call))
            await turn()
            _, fds, _, _ = socket.recv_fds(zygote, 65_536, 4)
            os.write(fds[1], b"out\n")
            await turn()
            assert call.log.last == 0
            say(zygote, started=1, pid=7)
            say(zygote, ended=1, status=0, failure=None)
            await running
            for fd in fds:
                os.close(fd)
            pieces, _ = call.log.after(LogPosition(0), 1 << 20)
            events = pb.CallEventBatch.FromString(b"".join(pieces)).events
            assert [event.WhichOneof("event") for event in events] == ["started", "output"]
