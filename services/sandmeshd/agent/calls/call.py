"""One call: its events, its input, its subscriber and its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallFinished, InvalidArgument
from sandmeshd.agent.calls.control import CallSignals, SignalHandler, StopHandler
from sandmeshd.agent.calls.event_log import EVENT_COST, CallLog
from sandmeshd.agent.calls.history import PastCall
from sandmeshd.agent.calls.spill import Disk, Spill
from sandmeshd.agent.calls.stdin import ProcessInput
from sandmeshd.agent.calls.trace import CallPlace
from sandmeshd.agent.userland.python import content_blocks

CHUNK: Final = 64 << 10
"""The most bytes of output in one event."""
SMALLEST_READ: Final = 4 << 10
LONGEST_MESSAGE: Final = 2000
_STARTED_DELAY: Final = 0.02
"""How long the event that a cell has started may wait for the cell's result, in seconds."""
_LARGEST_STRUCTURED: Final = 1 << 20


class Outcome(NamedTuple):
    """How a tool ended, as its Result reports it."""

    is_error: bool = False
    reason: int = pb.END_REASON_EXITED
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    structured: bytes = b""


class CallSubscriber(Protocol):
    """What follows a call's events."""

    def notify(self, *, now: bool) -> None:
        """Note that there are events to send; `now` says whether they should wait for no more."""
        ...

    def replaced(self) -> None:
        """Note that another subscriber follows the call now."""
        ...


@dataclass(frozen=True)
class Timeouts:
    """How long is waited, in seconds."""

    reattach: float = 30.0
    """For a subscriber of a call that has none, before the oldest output is dropped to unblock its writer."""
    interrupt: float = 1.0
    """For an interrupted cell, before its kernel is killed."""


class CallControl(CallSignals):
    """What callers do to a running call, and the handlers that react to it."""

    stop_reason: int | None = None
    _room_waiters: tuple[Callable[[], None], ...] = ()
    _stop_timers: tuple[asyncio.TimerHandle, ...] = ()

    def stop_after(self, seconds: float | None) -> None:
        """Stop the call as timed out after so many seconds, unless it has finished by then; None: no limit."""
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self.stop, pb.END_REASON_TIMED_OUT)
            self._stop_timers += (timer,)

    @contextmanager
    def stopping(self, stop: StopHandler, signal: SignalHandler | None = None) -> Generator[None]:
        """Call `stop` while this is entered and the call is cancelled or times out, immediately if it already is.

        Likewise `signal` with the number of each signal for the call's processes.
        """
        outer, self._handlers = self._handlers, (stop, signal)
        try:
            if self.stop_reason is not None:
                stop()
            while signal is not None and self._pending_signals:
                number, *later = self._pending_signals
                self._pending_signals = tuple(later)
                signal(number)
            yield
        finally:
            self._handlers = outer

    def stop(self, reason: int) -> None:
        """End the call: its result still follows, with the reason."""
        if not self.finished and self.stop_reason is None:
            self.stop_reason = reason
            self.wake_writers()
            if self._handlers[0] is not None:
                self._handlers[0]()

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when there may be room for output."""
        self._room_waiters += (wake,)

    def wake_writers(self) -> None:
        """Wake those that wait for room."""
        if self._room_waiters:
            waiters, self._room_waiters = self._room_waiters, ()
            for wake in waiters:
                wake()


class CallWriter(CallControl):
    """The events of a call as its handler writes them."""

    pid = 0
    """Its process as user code sees it, 0 until there is one."""
    dropped_bytes = 0
    """Output beyond the caller's limit, or that a stopped call had no room for."""
    _started_timer: asyncio.TimerHandle | None = None
    """Sends the event that the call has started; any other event cancels it."""
    _subscriber: CallSubscriber | None = None

    def __init__(self, start: pb.CallStart) -> None:
        self.id = start.call_id
        self.log = CallLog(start.window_bytes)
        self.place = CallPlace(start.trace) if start.HasField("trace") else None
        """Its place in a trace, where it has one."""
        self.dropping = start.overflow == pb.OVERFLOW_DROP_OLDEST
        """Whether the oldest output makes room for new output; otherwise the writer waits for room."""
        self._limit = start.output_limit_bytes or None

    def notify(self, *, now: bool) -> None:
        """Notify the subscriber of events to send; `now` says whether they should wait for no more."""
        if self._started_timer is not None:
            self._started_timer.cancel()
            self._started_timer = None
        if self._subscriber is not None:
            self._subscriber.notify(now=now)

    def started(self, pid: int = 0, *, soon: bool = True) -> None:
        """Append the event that the call runs; without `soon` it is sent with the next event, or a moment later."""
        self.pid = pid
        self.log.append(pb.CallEvent(started=pb.Started(pid=pid)))
        if soon:
            self.notify(now=False)
        else:
            loop = asyncio.get_running_loop()
            self._started_timer = loop.call_later(_STARTED_DELAY, partial(self.notify, now=True))

    @property
    def room(self) -> int:
        """How many bytes of output may be written now; less than SMALLEST_READ means wait with `when_room`."""
        if self.dropping or self._limit == 0 or self.stop_reason is not None:
            return CHUNK
        return min(CHUNK, self.log.room)

    def has_room(self, size: int) -> bool:
        """Return whether a content block of so many bytes can be kept now."""
        return self.dropping or not self.log.unread or self.log.room >= size or self.stop_reason is not None

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
            self.notify(now=self.log.unread > CHUNK // 2)

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
        """Keep a content block as `keep` does, once there is room. One larger than the window is sent by itself."""
        while not self.keep(block, soon=soon):
            self.notify(now=True)
            await self.roomier()

    def keep(self, block: bytes, *, soon: bool = True) -> bool:
        """Keep a content block; return False if there is no room. Without `soon` it is sent with the next event."""
        size = len(block)
        if self.log.unread + size + EVENT_COST > self.log.capacity:
            if not self.has_room(size):
                return False
            if self.stop_reason is not None and self._is_full(size):
                self.dropped_bytes += size
                return True
            if self.dropping:
                self.log.drop_oldest(size + EVENT_COST)
        self.log.append(pb.CallEvent(content=pb.Content(json=block)), size)
        if soon:
            self.notify(now=False)
        return True

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


class RunningCall(CallWriter):
    """A call from its start until its log is forgotten. Handlers write to it, a link's subscription reads it."""

    end_reason: int = pb.END_REASON_UNSPECIFIED
    past: PastCall | None = None
    """Its note in the history of the sandbox's calls."""
    forsaken = False
    """Whether it had no subscriber for longer than the reattach timeout."""
    _reattach_timer: asyncio.TimerHandle | None = None
    _takes = False
    """Whether a subscriber took events without acknowledging them."""

    def __init__(self, start: pb.CallStart, timeouts: Timeouts, disk: Disk | None = None) -> None:
        super().__init__(start)
        self.timeouts = timeouts
        self.head = pb.CallEventBatch(call_id=start.call_id).SerializeToString()
        self.input = ProcessInput(partial(self.notify, now=True)) if start.takes_input else None
        self._always_drops = self.dropping
        self._disk = disk

    def finish(self, outcome: Outcome) -> None:
        """Append the result, the last event."""
        if self.dropped_bytes:
            self.log.append(pb.CallEvent(dropped=pb.Dropped(bytes=self.dropped_bytes)))
        fits = len(outcome.structured) <= _LARGEST_STRUCTURED
        result = pb.Result(
            reason=outcome.reason,  # type: ignore[arg-type]  # typeshed has no open enums
            is_error=outcome.is_error,
            message=outcome.message[:LONGEST_MESSAGE],
            structured_json=outcome.structured if fits else b"",
        )
        if outcome.exit_code is not None:
            result.exit_code = outcome.exit_code
        if outcome.signal is not None:
            result.signal = outcome.signal
        self.log.append(pb.CallEvent(result=result))
        self.finished = True
        self.end_reason = outcome.reason
        for timer in self._stop_timers:
            timer.cancel()
        if self.input is not None:
            self.input.close()
        if self._reattach_timer is not None:
            self._reattach_timer.cancel()
        self.notify(now=True)

    def take_input(self, item: pb.Input) -> int:
        """Take data for standard input and return the last sequence that was taken.

        Raises:
            CallFinished: The call has finished.
            InvalidArgument: The call takes no input, or a sequence is missing.
        """
        if self.finished:
            raise CallFinished(f"call {self.id} has finished and takes no input")
        if self.input is None:
            raise InvalidArgument(f"call {self.id} takes no input: start it with takes_input")
        self.input.take(item)
        return self.input.taken

    def acknowledge(self, sequence: int) -> None:
        """Free events, which is credit for more. The log of a finished call is kept whole for later subscribers."""
        if not self.finished:
            self.log.acknowledge(sequence)
            self.wake_writers()

    def take(self, sequence: int) -> None:
        """Grant credit for events that the subscriber passed on; an attach replays those that are still kept."""
        if not self.finished:
            self._takes = True
            self._open_spill()
            self.log.take(sequence)
            self.wake_writers()

    @property
    def followed(self) -> bool:
        """Whether it has a subscriber."""
        return self._subscriber is not None

    def attach(self, subscriber: CallSubscriber) -> None:
        """Make `subscriber` the one that follows the call."""
        if self._subscriber is not None:
            self._subscriber.replaced()
        self._subscriber = subscriber
        self.forsaken = False
        self.dropping = self._always_drops
        self.log.spilling = False
        if self._takes:
            self.log.untake()
        if self._reattach_timer is not None:
            self._reattach_timer.cancel()

    def detach(self, subscriber: CallSubscriber, *, ended: bool = False) -> None:
        """Forget a subscriber, if it is still the one; after the reattach timeout the writer is not blocked.

        `ended` says that it has the result; what it may lack of the output then stays on disk for that time.
        """
        if self._subscriber is not subscriber:
            return
        self._subscriber = None
        if self._takes:
            self.log.untake()
        if not self.finished:
            self.log.spilling = not self._always_drops
            self._open_spill()
            self.wake_writers()
        elif not ended or not self._takes or self.log.spill is None or not self.log.spill.used:
            return
        loop = asyncio.get_running_loop()
        self._reattach_timer = loop.call_later(self.timeouts.reattach, self._forsake)

    def _open_spill(self) -> None:
        if self.log.spill is None and not self._always_drops:
            self.log.spill = Spill(self._disk)

    def _forsake(self) -> None:
        self.forsaken = self.dropping = True
        if self.finished:
            self.log.drop_spilled()
        self.wake_writers()
