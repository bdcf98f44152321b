"""What a call's handler writes: output and content, held to the window that its caller acknowledges."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from functools import partial
from typing import Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.control import CallControl
from sandmeshd.agent.calls.event_log import EVENT_COST, EventLog, bounded_window
from sandmeshd.agent.userland import content_blocks

CHUNK: Final = 64 << 10
"""The most bytes of output in one event."""
SMALLEST_READ: Final = 4 << 10
LONGEST_MESSAGE: Final = 2000
_STARTED_DELAY: Final = 0.02
"""How long the event that a cell has started may wait for the cell's result, in seconds."""


class CallWriter(CallControl, ABC):
    """The events of a call as its handler writes them."""

    def __init__(self, start: pb.CallStart) -> None:
        super().__init__(start.call_id)
        self.log = EventLog(bounded_window(start.window_bytes))
        self.pid = 0
        """Its process as user code sees it, 0 until there is one."""
        self.dropping = start.overflow == pb.OVERFLOW_DROP_OLDEST
        """Whether the oldest output makes room for new output; otherwise the writer waits for room."""
        self.dropped_bytes = 0
        """Output beyond the caller's limit, or that a stopped call had no room for."""
        self._limit = start.output_limit_bytes or None
        self.started_timer: asyncio.TimerHandle | None = None
        """Sends the event that the call has started; any other event cancels it."""

    @abstractmethod
    def notify(self, *, now: bool) -> None:
        """Notify the subscriber of events to send; `now` says whether they should wait for no more."""

    def started(self, pid: int = 0, *, soon: bool = True) -> None:
        """Append the event that the call runs; without `soon` it is sent with the next event, or a moment later."""
        self.pid = pid
        self.log.append(pb.CallEvent(started=pb.Started(pid=pid)))
        if soon:
            self.notify(now=False)
        else:
            loop = asyncio.get_running_loop()
            self.started_timer = loop.call_later(_STARTED_DELAY, partial(self.notify, now=True))

    @property
    def room(self) -> int:
        """How many bytes of output may be written now; less than SMALLEST_READ means wait with `when_room`."""
        if self.dropping or self._limit == 0 or self.stop_reason is not None:
            return CHUNK
        return min(CHUNK, self.log.room)

    def has_room(self, size: int) -> bool:
        """Return whether a content block of so many bytes can be kept now."""
        return self.dropping or self.log.empty or self.log.room >= size or self.stop_reason is not None

    async def roomier(self) -> None:
        """Wait until there may be more room."""
        woken = asyncio.get_running_loop().create_future()
        self.when_room(lambda: None if woken.done() else woken.set_result(None))
        await woken

    def output(self, stream: int, data: bytes) -> None:
        """Keep what a process wrote, at most `room` bytes."""
        data = self._within_limit(data)
        if data:
            if self.dropping:
                self.log.drop_oldest(len(data) + EVENT_COST)
            self.log.append_output(stream, data)
            self.notify(now=self.log.used > CHUNK // 2)

    def _within_limit(self, data: bytes) -> bytes:
        kept = data if self._limit is None else data[: self._limit]
        if self.stop_reason is not None and self._is_full(len(kept)):
            kept = b""
        if self._limit is not None:
            self._limit -= len(kept)
        self.dropped_bytes += len(data) - len(kept)
        return kept

    def _is_full(self, size: int) -> bool:
        """Return whether a call that was stopped has no room: its end does not wait for a slow reader."""
        return not self.dropping and self.log.room < size

    async def content(self, block: bytes, *, soon: bool = True) -> None:
        """Keep a content block as `keep` does, once there is room. One that is larger than the window goes alone."""
        while not self.has_room(len(block)):
            self.notify(now=True)
            await self.roomier()
        self.keep(block, soon=soon)

    def keep(self, block: bytes, *, soon: bool = True) -> None:
        """Keep a content block that there is room for; without `soon` it is sent with the next event."""
        if self.stop_reason is not None and self._is_full(len(block)):
            self.dropped_bytes += len(block)
            return
        if self.dropping:
            self.log.drop_oldest(len(block) + EVENT_COST)
        self.log.append(pb.CallEvent(content=pb.Content(json=block)), len(block))
        if soon:
            self.notify(now=False)

    async def text(self, content: str, description: str = "stderr") -> None:
        """Keep a text as content."""
        for block in content_blocks.texts(content, description):
            await self.content(block)

    def request_input(self, request: bytes) -> None:
        """Append the event that a line of input is awaited; `request` is the kernel's JSON, which may be anything."""
        try:
            parsed = json.loads(request)
            prompt, password = str(parsed["prompt"])[:LONGEST_MESSAGE], bool(parsed["password"])
        except (ValueError, TypeError, KeyError, RecursionError):
            prompt, password = "", False
        prompt = prompt.encode("utf-8", "backslashreplace").decode()
        self.log.append(pb.CallEvent(input_requested=pb.InputRequested(prompt=prompt, password=password)))
        self.notify(now=True)

    def progress(self, done: float, total: float, message: str) -> None:
        """Append how far the tool is, if there is room: a later event supersedes it."""
        encodable = message[:LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode()
        event = pb.CallEvent(progress=pb.Progress(progress=done, total=total, message=encodable))
        full = self.stop_reason is not None and self._is_full(CHUNK)
        if self.room >= event.ByteSize() + EVENT_COST and not full:
            if self.dropping:
                self.log.drop_oldest(event.ByteSize() + EVENT_COST)
            self.log.append(event, 0)
            self.notify(now=False)
