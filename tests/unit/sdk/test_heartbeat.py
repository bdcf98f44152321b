"""When a stream of calls is taken for dead."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandmesh._client import heartbeat as _heartbeat
from sandmesh._client.heartbeat import WatchedStream
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import MeshUnavailable


class Silent:
    """A stream on which nothing comes before it is told to."""

    def __init__(self) -> None:
        self.responses: asyncio.Queue[object] = asyncio.Queue()
        self._reading: asyncio.Task[object] | None = None

    async def read(self) -> object:
        self._reading = asyncio.create_task(self.responses.get())
        return await self._reading

    async def write(self, request: pb.MultiplexRequest) -> None:
        del request

    async def done_writing(self) -> None:
        return

    def cancel(self) -> bool:
        return self._reading is not None and self._reading.cancel()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Silent:
    monkeypatch.setattr(_heartbeat, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(_heartbeat, "DEAD_SECONDS", 0.5)
    return Silent()


async def test_a_silent_stream_is_dead_where_something_is_awaited(silent: Silent) -> None:
    dead = asyncio.Event()
    stream = WatchedStream(silent, lambda: True, dead.set)
    async with asyncio.timeout(20):
        with pytest.raises(MeshUnavailable, match="silent"):
            await stream.read()
    assert dead.is_set()


async def test_what_holds_up_the_program_itself_is_no_silence(silent: Silent) -> None:
    dead = asyncio.Event()
    stream = WatchedStream(silent, lambda: True, dead.set)
    reading = asyncio.create_task(stream.read())
    await asyncio.sleep(0)
    time.sleep(0.8)  # noqa: ASYNC251 - as a program that computes, or a machine that has no time for it
    # One beat, in which the stream would be given up.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    silent.responses.put_nowait("alive")
    async with asyncio.timeout(20):
        assert await reading == "alive"
    assert not dead.is_set()
    stream.cancel()
