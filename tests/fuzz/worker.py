"""The process that feeds one target, so that a crash or a hang is seen by the process that started it."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import logging
import mmap
import os
import resource
import struct
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from tests.fuzz.target import Feed, Target, stream_of

PLACE: Final = struct.Struct("!Qd")
"""What a worker notes of itself while it runs: the number of the input, and when it began."""
MOST_GROWTH_MIB: Final = 256
_WARM_INPUTS: Final = 300
_MOST_KINDS: Final = 20
_LATE_SECONDS: Final = 5.0
"""How long whatever an input left running may take at the end."""


@dataclass
class Failure:
    """A fault, at the first input that caused it."""

    number: int
    where: str
    text: str
    data: str
    times: int = 1


@dataclass
class Run:
    """What came of a target's inputs."""

    target: str
    seed: int
    tried: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    failures: list[Failure] = field(default_factory=list[Failure])


class Faults(logging.Handler):
    """Collects what went wrong: exceptions of the parser, of its tasks and callbacks, and what logs as a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Failure] = {}
        self.number = -1
        self.data = b""

    def add(self, where: str, text: str) -> None:
        """Count a fault at the current input."""
        if where in self.found:
            self.found[where].times += 1
        elif len(self.found) < _MOST_KINDS:
            self.found[where] = Failure(self.number, where, text, base64.b64encode(self.data).decode())

    def raised(self, error: BaseException) -> None:
        """Count an exception, told apart by its type and the line that raised it."""
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "/sandmesh" in frame.filename] or frames
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        self.add(f"{type(error).__name__} at {place}", "".join(traceback.format_exception(error)[-12:]))

    def in_loop(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count what the event loop reports."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.raised(error)
        else:
            self.add(f"loop: {context.get('message')}", repr(context))

    def in_log(self, _: Any, __: str, event: Any) -> Any:
        """Count what a service logs with a traceback."""
        if event.get("exc_info"):
            error = sys.exc_info()[1]
            if error is not None:
                self.raised(error)
            else:
                self.add(f"log: {event.get('event')}", repr(event))
        raise structlog.DropEvent

    def emit(self, record: logging.LogRecord) -> None:
        """Count what a library logs with a traceback."""
        if record.exc_info and record.exc_info[1] is not None:
            self.raised(record.exc_info[1])


class Worker:
    """Feeds one target for a time, or with one input."""

    def __init__(self, target: Target, seed: int, place: Path) -> None:
        self._target = target
        self._run = Run(target.name, seed)
        self._faults = Faults()
        with place.open("r+b") as file:
            self._place = mmap.mmap(file.fileno(), PLACE.size)
        self._outcomes: Counter[str] = Counter()

    async def run(self, seconds: float, first: int, last: int | None) -> Run:
        """Feed inputs from a number on until the time is over, or to another number."""
        asyncio.get_running_loop().set_exception_handler(self._faults.in_loop)
        logging.getLogger().addHandler(self._faults)
        structlog.configure(processors=[self._faults.in_log])
        before = 0
        async with self._target.open() as feed:
            began = time.monotonic()
            number = first
            while time.monotonic() - began < seconds and (last is None or number < last):
                await self._try(feed, number)
                number += 1
                if number - first == _WARM_INPUTS:
                    before = peak_mib()
            self._run.seconds = time.monotonic() - began
        await self._end(before)
        self._run.tried = number - first
        self._run.outcomes = dict(self._outcomes)
        self._run.failures = list(self._faults.found.values())
        return self._run

    async def _try(self, feed: Feed, number: int) -> None:
        data = self._target.make(stream_of(self._run.seed, self._target.name, number))
        self._faults.number, self._faults.data = number, data
        PLACE.pack_into(self._place, 0, number, time.monotonic())
        try:
            outcome = feed(data)
            self._outcomes[await outcome if inspect.isawaitable(outcome) else outcome] += 1
        except Exception as error:
            self._outcomes["fault"] += 1
            self._faults.raised(error)
        if not number & 63:
            await asyncio.sleep(0)

    async def _end(self, before: int) -> None:
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        if left:
            _, late = await asyncio.wait(left, timeout=_LATE_SECONDS)
            for task in late:
                self._faults.add(f"a task is left over: {task.get_coro()}", repr(task))
        if before and peak_mib() - before > MOST_GROWTH_MIB:
            self._faults.add("memory grew", f"from {before} to {peak_mib()} MiB")


def peak_mib() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main(arguments: list[str]) -> None:
    """Feed the target that the arguments name, and print what came of it as JSON."""
    from tests.fuzz.campaign import TARGETS  # noqa: PLC0415 - the campaign starts this module

    name, seed, seconds, first, last, place = arguments
    worker = Worker(TARGETS[name], int(seed), Path(place))
    # Whatever the code under test prints goes with its errors: the result alone is standard output.
    result = os.dup(1)
    os.dup2(2, 1)
    run = asyncio.run(worker.run(float(seconds), int(first), int(last) if last else None))
    with suppress(BrokenPipeError):
        os.write(result, json.dumps(asdict(run)).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
