"""Creates many sandboxes in parallel and yields each as soon as it is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from sandmesh.errors import DeadlineExceeded, Fault, InvalidArgument, SandmeshError
from sandmesh.inputs import Options
from sandmesh.sandbox.boxes import BaseSandboxAsync, SandboxAsync
from sandmesh.sandbox.sync import BaseSandbox

B = TypeVar("B", BaseSandbox, BaseSandboxAsync)

LARGEST_BATCH = 100_000
JOB_LABEL = "job"

OnError = Literal["list", "raise"]


@dataclass(frozen=True, kw_only=True)
class BatchItem(Generic[B]):
    """One of a batch's sandboxes: it is ready, or could not be created."""

    index: int
    """Which one it is, 0 to count - 1; they come in the order in which they end."""

    seconds: float
    """From its own request until now; its turn in the batch is not in it."""

    sandbox: B | None = None
    """The open sandbox; its consumer closes it, which releases it."""

    error: SandmeshError | None = None
    """Why there is none."""

    @property
    def fault(self) -> Fault | None:
        """Whose fault it is that there is none, as `SandmeshError.fault`."""
        return None if self.error is None else self.error.fault


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """What `Mesh.create_many` was called with, checked."""

    count: int
    concurrency: int
    deadline: float | None
    on_error: OnError

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InvalidArgument: One is out of range.
        """
        _check("count", self.count, LARGEST_BATCH)
        _check("concurrency", self.concurrency, LARGEST_BATCH)
        if self.deadline is not None and not self.deadline > 0:
            raise InvalidArgument(
                f"deadline is {self.deadline!r}: it is seconds above 0, or None", {"field": "deadline"}
            )
        if self.on_error not in ("list", "raise"):
            raise InvalidArgument(f"on_error is {self.on_error!r}: it is 'list' or 'raise'", {"field": "on_error"})


def batch_options(options: Options, job: str | None) -> Options:
    """Return the options of a batch's box: with the label of its job, and behind the creates of others."""
    labels = dict(options.get("labels") or {})
    result: Options = {**options, "priority": options.get("priority") or "batch"}
    return result if job is None else {**result, "labels": {**labels, JOB_LABEL: job}}


@dataclass(frozen=True)
class BoxMaker(Generic[B]):
    """How a batch makes its boxes."""

    make: Callable[[], B]
    """Returns a new box, not started."""

    twin: Callable[[B], SandboxAsync]
    """Returns the async twin of a box, which is itself for an async one."""


async def create_all(plan: BatchPlan, boxes: BoxMaker[B]) -> AsyncGenerator[BatchItem[B]]:
    """Create `plan.count` sandboxes, at most `plan.concurrency` at a time, and yield each when it has ended.

    Closing the generator cancels what is under way and releases what was not yielded.
    """
    ended: asyncio.Queue[BatchItem[B] | BaseException] = asyncio.Queue()
    indexes = iter(range(plan.count))
    until = None if plan.deadline is None else asyncio.get_running_loop().time() + plan.deadline
    workers = [asyncio.create_task(_work(indexes, boxes, until, ended)) for _ in range(plan.concurrency)]
    for worker in workers:
        worker.add_done_callback(lambda done: _pass_on(done, ended))
    try:
        for _ in range(plan.count):
            item = await ended.get()
            if isinstance(item, BaseException):
                raise item
            if item.error is not None and plan.on_error == "raise":
                raise item.error
            yield item
    finally:
        await _stop(workers, boxes, ended)


async def _work(
    indexes: Iterator[int],
    boxes: BoxMaker[B],
    until: float | None,
    ended: asyncio.Queue[BatchItem[B] | BaseException],
) -> None:
    for index in indexes:
        box, error, began = boxes.make(), None, time.monotonic()
        try:
            async with asyncio.timeout_at(until):
                await boxes.twin(box).start()
        except SandmeshError as failure:
            error = failure
        except TimeoutError:
            error = DeadlineExceeded("the batch's deadline passed before this sandbox was ready")
        seconds = time.monotonic() - began
        if error is None:
            ended.put_nowait(BatchItem(index=index, seconds=seconds, sandbox=box))
        else:
            ended.put_nowait(BatchItem(index=index, seconds=seconds, error=error))


def _pass_on(worker: asyncio.Task[None], ended: asyncio.Queue[BatchItem[B] | BaseException]) -> None:
    # Without it, the iteration would wait for ever for what a defect ended.
    if not worker.cancelled() and (defect := worker.exception()) is not None:
        ended.put_nowait(defect)


async def _stop(
    workers: list[asyncio.Task[None]], boxes: BoxMaker[B], ended: asyncio.Queue[BatchItem[B] | BaseException]
) -> None:
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    while not ended.empty():
        item = ended.get_nowait()
        if isinstance(item, BatchItem) and item.sandbox is not None:
            with suppress(SandmeshError):  # Its lease ends it then.
                await boxes.twin(item.sandbox).close()


def _check(field: str, value: int, largest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise InvalidArgument(f"{field} is {value!r}: it is a whole number from 1 to {largest:,}", {"field": field})
