"""One call: its events, its input, its subscriber and its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallFinished, InvalidArgument
from sandmeshd.agent.calls.spill import Disk, Spill
from sandmeshd.agent.calls.stdin import Input
from sandmeshd.agent.calls.writer import LONGEST_MESSAGE, CallWriter

_LARGEST_STRUCTURED: Final = 1 << 20


class Outcome(NamedTuple):
    """How a tool ended, as its Result reports it."""

    is_error: bool = False
    reason: int = pb.END_REASON_EXITED
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    structured: bytes = b""


class Subscriber(Protocol):
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


class Call(CallWriter):
    """A call from its start until its log is forgotten. Handlers write to it, a link's subscription reads it."""

    def __init__(self, start: pb.CallStart, timeouts: Timeouts, disk: Disk | None = None) -> None:
        super().__init__(start)
        self.timeouts = timeouts
        self.head = pb.CallEventBatch(call_id=start.call_id).SerializeToString()
        self.input = Input(partial(self.notify, now=True)) if start.takes_input else None
        self.end_reason: int = pb.END_REASON_UNSPECIFIED
        self.forsaken = False
        """Whether it had no subscriber for longer than the reattach timeout."""
        self._disk = disk
        self._subscriber: Subscriber | None = None
        self._always_drops = self.dropping
        self._reattach_timer: asyncio.TimerHandle | None = None

    def notify(self, *, now: bool) -> None:
        """Notify the subscriber of events to send; `now` says whether they should wait for no more."""
        if self.started_timer is not None:
            self.started_timer.cancel()
            self.started_timer = None
        if self._subscriber is not None:
            self._subscriber.notify(now=now)

    def finish(self, outcome: Outcome) -> None:
        """Append the result, the last event."""
        if self.dropped_bytes:
            self.log.append(pb.CallEvent(dropped=pb.Dropped(bytes=self.dropped_bytes)))
        self.log.append(pb.CallEvent(result=_result(outcome)))
        self.finished = True
        self.end_reason = outcome.reason
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

    @property
    def followed(self) -> bool:
        """Whether it has a subscriber."""
        return self._subscriber is not None

    def attach(self, subscriber: Subscriber) -> None:
        """Make `subscriber` the one that follows the call."""
        if self._subscriber is not None:
            self._subscriber.replaced()
        self._subscriber = subscriber
        self.forsaken = False
        self.dropping = self._always_drops
        self.log.spilling = False
        if self._reattach_timer is not None:
            self._reattach_timer.cancel()

    def detach(self, subscriber: Subscriber) -> None:
        """Forget a subscriber, if it is still the one; after the reattach timeout nobody blocks the writer."""
        if self._subscriber is not subscriber:
            return
        self._subscriber = None
        if not self.finished:
            self.log.spilling = not self._always_drops
            if self.log.spill is None:
                self.log.spill = Spill(self._disk)
            self.wake_writers()
            loop = asyncio.get_running_loop()
            self._reattach_timer = loop.call_later(self.timeouts.reattach, self._forsake)

    def _forsake(self) -> None:
        self.forsaken = self.dropping = True
        self.wake_writers()


def _result(outcome: Outcome) -> pb.Result:
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
    return result
