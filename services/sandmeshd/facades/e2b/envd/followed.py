"""A process of a sandbox that clients follow: each of them gets all of its output."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sandmesh.errors import SandmeshError, WrongState
from sandmesh.events import Output, Result
from sandmesh.sandbox.processes import ProcessAsync

Event: TypeAlias = dict[str, Any]
_QUEUED: Final = 32
_KEPT_BYTES: Final = 256 << 10
"""How much of a process's output is sent again to those who come later."""


@dataclass(frozen=True)
class ProcessConfig:
    """What a client started: as `process.ProcessConfig`, and its tag."""

    cmd: str
    args: list[str] = field(default_factory=list[str])
    envs: dict[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    tag: str = ""
    user: str = ""
    """The user that it runs as; empty is the default one."""


class ProcessSubscriber:
    """One who follows a process; while it does not read, the process waits once its window is full.

    It has `earlier` events first.
    """

    def __init__(self, earlier: Iterable[Event] = ()) -> None:
        self._earlier = deque(earlier)
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(_QUEUED)
        self._left = asyncio.Event()

    async def next(self, seconds: float) -> Event | None:
        """Return the next event, {"keepalive": {}} after so many seconds without one, None at the end."""
        if self._earlier:
            return self._earlier.popleft()
        try:
            async with asyncio.timeout(seconds):
                return await self._queue.get()
        except TimeoutError:
            return {"keepalive": {}}

    async def deliver(self, event: Event | None) -> None:
        """Hand over an event; wait for room, or for the subscriber to leave."""
        if self._left.is_set():
            return
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(event)
            return
        putting, leaving = asyncio.ensure_future(self._queue.put(event)), asyncio.ensure_future(self._left.wait())
        _, pending = await asyncio.wait([putting, leaving], return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()

    def leave(self) -> None:
        """Follow no more."""
        self._left.set()


class Running:
    """A process, and who follows it."""

    def __init__(self, process: ProcessAsync, pid: int, config: ProcessConfig, *, terminal: bool) -> None:
        self.process = process
        self.pid = pid
        self.config = config
        self.terminal = terminal
        self.result: Result | None = None
        self.error: SandmeshError | None = None
        self._subscribers: set[ProcessSubscriber] = set()
        self._kept: deque[tuple[Event, int]] | None = deque()
        self._kept_bytes = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.result is not None or self.error is not None

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[ProcessSubscriber]:
        """Follow it until the block ends, from the beginning of what is kept of its output; it goes on."""
        subscriber = ProcessSubscriber(event for event, _ in self._kept or ())
        self._subscribers.add(subscriber)
        if self._task is None:
            self._task = asyncio.create_task(self._read(), name="sandmesh-e2b-process")
        elif self.ended:
            await subscriber.deliver(None)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            subscriber.leave()

    def forget_output(self) -> None:
        """Keep none of its output."""
        self._kept = None

    async def close(self) -> None:
        """Read no more of it, and break off with those who follow it; where its sandbox is there, it goes on."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
            with suppress(SandmeshError):
                await self.process.detach()
            self.error = WrongState(f"process {self.pid} is followed no more")
            await self._tell(None)

    async def _read(self) -> None:
        try:
            async for event in self.process:
                if isinstance(event, Output):
                    stream = "pty" if self.terminal else event.stream
                    await self._tell({"data": {stream: base64.b64encode(event.data).decode()}}, len(event.data))
            self.result = await self.process.wait()
        except SandmeshError as error:
            self.error = error
        await self._tell(None)

    async def _tell(self, event: Event | None, size: int = 0) -> None:
        if event is not None and self._kept is not None:
            self._kept.append((event, size))
            self._kept_bytes += size
            while self._kept_bytes > _KEPT_BYTES:
                self._kept_bytes -= self._kept.popleft()[1]
        for subscriber in list(self._subscribers):
            await subscriber.deliver(event)


def end_event(result: Result) -> Event:
    """Return the event of a process's end, worded as envd's."""
    if result.exit_code is not None:
        status = f"exit status {result.exit_code}"
        end: Event = {"exitCode": result.exit_code, "exited": True, "status": status}
        return {"end": end | ({"error": status} if result.exit_code else {})}
    status = f"signal: {'killed' if result.signal in (9, None) else result.signal}"
    return {"end": {"exitCode": -1, "exited": False, "status": status, "error": status}}
