"""One call: its log, what is held back and dropped, its stop and its end."""

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
from sandmeshd.agent.calls.event_log import EVENT_COST, EventLog, hold_window
from sandmeshd.agent.calls.spill import Disk, Spill
from sandmeshd.agent.calls.stdin import Input
from sandmeshd.agent.userland import blocks

CHUNK: Final = 64 << 10
"""The most bytes of output in one event."""
SMALLEST_READ: Final = 4 << 10
_LONGEST_MESSAGE: Final = 2000
_LARGEST_STRUCTURED: Final = 1 << 20
_LARGEST_SIDE: Final = 10_000
_UNHURRIED: Final = 0.02
"""How long it may take until a caller learns that a cell runs, in seconds, where the cell's result comes later."""


class Outcome(NamedTuple):
    """How a tool ended, as its Result says it."""

    is_error: bool = False
    reason: int = pb.END_REASON_EXITED
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    structured: bytes = b""


class Subscriber(Protocol):
    """Who follows a call's events."""

    def notify(self, *, now: bool) -> None:
        """Learn that there is something to send; `now` says whether it should wait for no more."""
        ...

    def replaced(self) -> None:
        """Learn that another one follows the call now."""
        ...


@dataclass(frozen=True)
class Patience:
    """How long things are waited for, in seconds."""

    reattach: float = 30.0
    """A blocked writer of a call that nobody is attached to, before its oldest output goes."""
    interrupt: float = 1.0
    """An interrupted cell, before its kernel is killed."""


_Stop = tuple[Callable[[], None] | None, Callable[[int], None] | None]


class _Stopping:
    """Sets what a call's stop and its signals do, for a time."""

    __slots__ = ("_before", "_call", "_stop")

    def __init__(self, call: Call, stop: Callable[[], None], signal: Callable[[int], None] | None) -> None:
        self._call = call
        self._stop: _Stop = (stop, signal)
        self._before: _Stop = (None, None)

    def __enter__(self) -> None:
        self._before = self._call.swap_stop(self._stop)
        self._call.catch_up()

    def __exit__(self, *_: object) -> None:
        self._call.swap_stop(self._before)


class Call:
    """A call from its start until its log is forgotten. Handlers write to it, a link's subscription reads it."""

    def __init__(self, start: pb.CallStart, patience: Patience, disk: Disk | None = None) -> None:
        self.id = start.call_id
        self.patience = patience
        self.log = EventLog(hold_window(start.window_bytes), Spill(disk))
        self.head = pb.CallEventBatch(call_id=start.call_id).SerializeToString()
        self.input = Input(partial(self._notify, now=True)) if start.takes_input else None
        self.finished = False
        self.end_reason: int = pb.END_REASON_UNSPECIFIED
        self.pid = 0
        """Its process as user code sees it, 0 until there is one."""
        self.stop_reason: int | None = None
        self.signals_sent: set[int] = set()
        self._early_signals: list[int] = []
        self._subscriber: Subscriber | None = None
        self._drops = start.overflow == pb.OVERFLOW_DROP_OLDEST
        self._gave_up = False
        self._grace: asyncio.TimerHandle | None = None
        self._untold: asyncio.TimerHandle | None = None
        self._limit = start.output_limit_bytes or None
        self._over_limit = 0
        self._stop: _Stop = (None, None)
        self._on_resize: Callable[[int, int], None] | None = None
        self._waiting: list[Callable[[], None]] = []

    # What handlers do.

    def started(self, pid: int = 0, *, soon: bool = True) -> None:
        """Say that the call runs: `soon`, or where nobody waits for that with what comes next, within a moment."""
        self.pid = pid
        self.log.append(pb.CallEvent(started=pb.Started(pid=pid)))
        if soon:
            self._notify(now=False)
        else:
            loop = asyncio.get_running_loop()
            self._untold = loop.call_later(_UNHURRIED, partial(self._notify, now=True))

    @property
    def room(self) -> int:
        """How many bytes of output may be written now; less than SMALLEST_READ means wait with `when_room`."""
        if self._dropping or self._limit == 0 or self.stop_reason is not None:
            return CHUNK
        return min(CHUNK, self.log.room)

    @property
    def _dropping(self) -> bool:
        return self._drops or self._gave_up

    def _make_room(self, size: int) -> None:
        if self._dropping:
            self.log.drop_oldest(size + EVENT_COST)

    def output(self, stream: int, data: bytes) -> None:
        """Keep what a process wrote, at most `room` bytes."""
        data = self._within_limit(data)
        if data:
            self._make_room(len(data))
            self.log.append_output(stream, data)
            self._notify(now=self.log.used > CHUNK // 2)

    def _within_limit(self, data: bytes) -> bytes:
        kept = data if self._limit is None else data[: self._limit]
        if self._is_late(len(kept)):
            kept = b""
        if self._limit is not None:
            self._limit -= len(kept)
        self._over_limit += len(data) - len(kept)
        return kept

    def _is_late(self, size: int) -> bool:
        """Say whether a call that was stopped has no room: its end does not wait for who does not read."""
        return self.stop_reason is not None and not self._dropping and self.log.room < size

    def has_room(self, size: int) -> bool:
        """Say whether a content block of so many bytes can be kept now."""
        return self._dropping or self.log.empty or self.log.room >= size or self.stop_reason is not None

    async def content(self, block: bytes, *, soon: bool = True) -> None:
        """Keep a content block as `keep` does, once there is room. One that is larger than the window goes alone."""
        while not self.has_room(len(block)):
            self._notify(now=True)
            await self.roomier()
        self.keep(block, soon=soon)

    def keep(self, block: bytes, *, soon: bool = True) -> None:
        """Keep a content block that there is room for; without `soon` it is sent with what comes next."""
        if self._is_late(len(block)):
            self._over_limit += len(block)
            return
        self._make_room(len(block))
        self.log.append(pb.CallEvent(content=pb.Content(json=block)), len(block))
        if soon:
            self._notify(now=False)

    def ask_input(self, asked: bytes) -> None:
        """Tell the caller that a line of input is awaited; `asked` is the kernel's JSON, which may be anything."""
        try:
            told = json.loads(asked)
            prompt, password = str(told["prompt"])[:_LONGEST_MESSAGE], bool(told["password"])
        except (ValueError, TypeError, KeyError, RecursionError):
            prompt, password = "", False
        prompt = prompt.encode("utf-8", "backslashreplace").decode()
        self.log.append(pb.CallEvent(input_requested=pb.InputRequested(prompt=prompt, password=password)))
        self._notify(now=True)

    def progress(self, done: float, total: float, message: str) -> None:
        """Tell how far the tool is, if there is room: a later one says it too."""
        told = message[:_LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode()
        event = pb.CallEvent(progress=pb.Progress(progress=done, total=total, message=told))
        if self.room >= event.ByteSize() + EVENT_COST and not self._is_late(CHUNK):
            self._make_room(event.ByteSize())
            self.log.append(event, 0)
            self._notify(now=False)

    async def text(self, told: str, description: str = "stderr") -> None:
        """Keep a text as content."""
        for block in blocks.texts(told, description):
            await self.content(block)

    async def roomier(self) -> None:
        """Wait until room may have come."""
        woken = asyncio.get_running_loop().create_future()
        self.when_room(lambda: None if woken.done() else woken.set_result(None))
        await woken

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when room may have come."""
        self._waiting.append(wake)

    def stopping(self, stop: Callable[[], None], signal: Callable[[int], None] | None = None) -> _Stopping:
        """Have `stop` called while this is entered and the call is cancelled or out of time, at once if it is already.

        So is `signal` with the number of each signal for the call's processes.
        """
        return _Stopping(self, stop, signal)

    def swap_stop(self, stop: _Stop) -> _Stop:
        """Set what is called at a stop and at a signal, and give what was before."""
        before, self._stop = self._stop, stop
        return before

    def catch_up(self) -> None:
        """Call for the stop and the signals that came when nothing was set."""
        stop, signal = self._stop
        if self.stop_reason is not None and stop is not None:
            stop()
        while signal is not None and self._early_signals:
            signal(self._early_signals.pop(0))

    def finish(self, outcome: Outcome) -> None:
        """Keep the result, the last event."""
        if self._over_limit:
            self.log.append(pb.CallEvent(dropped=pb.Dropped(bytes=self._over_limit)))
        self.log.append(pb.CallEvent(result=_result(outcome)))
        self.finished = True
        self.end_reason = outcome.reason
        if self.input is not None:
            self.input.close()
        self._forget_grace()
        self._notify(now=True)

    # What callers do.

    def stop(self, reason: int) -> None:
        """End the call: its result still comes, with the reason."""
        if not self.finished and self.stop_reason is None:
            self.stop_reason = reason
            self._wake()
            if self._stop[0] is not None:
                self._stop[0]()

    def signal(self, number: int) -> None:
        """Send a signal to the call's processes.

        Raises:
            CallFinished: It has none any more.
            InvalidArgument: There is no such signal.
        """
        if self.finished:
            raise CallFinished(f"call {self.id} has finished and takes no signal")
        if not 0 < number <= 64:
            raise InvalidArgument(f"{number} is no signal: give 1 to 64")
        self.signals_sent.add(number)
        if self._stop[1] is not None:
            self._stop[1](number)
        else:
            self._early_signals.append(number)

    @contextmanager
    def resizing(self, resize: Callable[[int, int], None]) -> Generator[None]:
        """Have `resize` called with rows and columns when the caller's terminal changes."""
        self._on_resize = resize
        try:
            yield
        finally:
            self._on_resize = None

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the call's terminal.

        Raises:
            CallFinished: It has none any more.
            InvalidArgument: It has none at all, or the size is none.
        """
        if self.finished:
            raise CallFinished(f"call {self.id} has finished and takes no new size")
        if self._on_resize is None:
            raise InvalidArgument(f"call {self.id} has no terminal to resize: start the process with a pty")
        if not (0 < rows <= _LARGEST_SIDE and 0 < columns <= _LARGEST_SIDE):
            raise InvalidArgument(f"{rows} rows and {columns} columns are no size: give 1 to {_LARGEST_SIDE} of each")
        self._on_resize(rows, columns)

    def take_input(self, item: pb.Input) -> int:
        """Take data for standard input and give the last sequence that was taken.

        Raises:
            CallFinished: Nothing reads it any more.
            InvalidArgument: The call takes none, or a sequence is missing.
        """
        if self.finished:
            raise CallFinished(f"call {self.id} has finished and takes no input")
        if self.input is None:
            raise InvalidArgument(f"call {self.id} takes no input: start it with takes_input")
        self.input.take(item)
        return self.input.taken

    def acknowledge(self, sequence: int) -> None:
        """Free events, which is credit for more. The log of a finished call is kept whole for who asks again."""
        if not self.finished:
            self.log.acknowledge(sequence)
            self._wake()

    def attach(self, subscriber: Subscriber) -> None:
        """Make `subscriber` the one that follows the call."""
        if self._subscriber is not None:
            self._subscriber.replaced()
        self._subscriber = subscriber
        self._gave_up = False
        self.log.spilling = False
        self._forget_grace()

    def detach(self, subscriber: Subscriber) -> None:
        """Let go of a subscriber, if it is still the one: after a grace nobody holds the writer up."""
        if self._subscriber is not subscriber:
            return
        self._subscriber = None
        if not self.finished:
            self.log.spilling = not self._drops
            self._wake()
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(self.patience.reattach, self._give_up)

    @property
    def followed(self) -> bool:
        """Whether somebody is attached now."""
        return self._subscriber is not None

    @property
    def forsaken(self) -> bool:
        """Whether nobody was attached for longer than the reattach grace."""
        return self._gave_up

    def _give_up(self) -> None:
        self._gave_up = True
        self._wake()

    def _forget_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()

    def _notify(self, *, now: bool) -> None:
        if self._untold is not None:
            self._untold.cancel()
            self._untold = None
        if self._subscriber is not None:
            self._subscriber.notify(now=now)


def _result(outcome: Outcome) -> pb.Result:
    fits = len(outcome.structured) <= _LARGEST_STRUCTURED
    result = pb.Result(
        reason=outcome.reason,  # type: ignore[arg-type]  # typeshed has no open enums
        is_error=outcome.is_error,
        message=outcome.message[:_LONGEST_MESSAGE],
        structured_json=outcome.structured if fits else b"",
    )
    if outcome.exit_code is not None:
        result.exit_code = outcome.exit_code
    if outcome.signal is not None:
        result.signal = outcome.signal
    return result
