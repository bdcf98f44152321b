"""A slow import in small steps in a thread, or immediately when its result is needed."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sandmesh.errors import InternalError

if TYPE_CHECKING:
    from sandmeshd.agent.calls.call import Outcome, RunningCall
    from sandmeshd.agent.calls.toolbox import Handler

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.05
"""Between two steps: a call that arrives has the processor to itself after at most one of them."""
_BUSY_SECONDS: Final = 1.0
"""The same while the machine's processors are busy, as when many sandboxes are created together."""
_SWITCH_SECONDS: Final = 0.0005
"""The longest that the event loop waits for this thread; Python's default is ten times that."""
_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")
"""Nanoseconds of running and of waiting for a processor: see https://docs.kernel.org/scheduler/sched-stats.html."""


class Deferred(Generic[T]):
    """A value that is made once. `steps` are the modules that `make` imports, each a small part of the work."""

    def __init__(self, steps: Sequence[str], make: Callable[[], T]) -> None:
        self._steps = steps
        self._make = make
        self._urgent = Event()
        self._begun: Future[T] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._executor = ThreadPoolExecutor(1)
        # The thread starts now: later, user code may use up the limit of processes.
        self._executor.submit(int)
        sys.setswitchinterval(_SWITCH_SECONDS)

    def begin(self) -> Future[T]:
        """Begin in the background. A failure is logged, and retried when the value is needed."""
        if self._begun is None:
            self._begun = self._executor.submit(self._run)
        return self._begun

    def begun_by(self, run: Handler, seconds: float) -> Handler:
        """Return a handler of calls that begins so many seconds after its first call, too."""

        async def run_and_begin(params: Any, call: RunningCall) -> Outcome:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(seconds, self.begin)
            return await run(params, call)

        return run_and_begin

    def get(self) -> T:
        """Return the value, made now if need be.

        Raises:
            InternalError: It could not be made.
        """
        self._urgent.set()
        made = self.begin()
        failure = made.exception()
        if failure is not None:
            self._begun = None
            raise InternalError(f"the sandbox's tools could not be loaded ({failure!r}); see its log") from failure
        return made.result()

    def close(self) -> None:
        """Begin no further step; one in progress ends with the process."""
        if self._timer is not None:
            self._timer.cancel()
        self._urgent.set()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> T:
        try:
            self._import()
            return self._make()
        except Exception:
            # The value may never be needed.
            traceback.print_exc(file=sys.stderr)
            raise

    def _import(self) -> None:
        for step in self._steps:
            if self._urgent.is_set():
                return
            ran, waited = processor_time()
            import_module(step)
            now_ran, now_waited = processor_time()
            self._urgent.wait(_BUSY_SECONDS if now_waited - waited > now_ran - ran else _PAUSE_SECONDS)


def processor_time() -> tuple[int, int]:
    """Return the nanoseconds that this thread ran, and that it waited for a processor."""
    try:
        ran, waited, _ = _SCHEDSTAT.read_text().split()
    except (OSError, ValueError):
        # gVisor has no such accounting.
        return 0, 0
    return int(ran), int(waited)
