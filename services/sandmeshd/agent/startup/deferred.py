"""What takes long to import and make, made beside everything else: in its own time, or at once when it is asked for."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Final, Generic, TypeVar

from sandmesh.errors import InternalError

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.05
"""Between two steps: a call that comes has the processor to itself after at most one of them."""
_BUSY_SECONDS: Final = 1.0
"""The same while others of the machine wait for its processors too, as when many sandboxes are created at once."""
_SWITCH_SECONDS: Final = 0.0005
"""How long the loop waits for this thread at most when something came for it; Python's own is ten times that."""
_ACCOUNT: Final = Path("/proc/thread-self/schedstat")
"""Nanoseconds on a processor, and of waiting for one: see https://docs.kernel.org/scheduler/sched-stats.html."""


class Late(Generic[T]):
    """One thing, made once. `steps` are modules that `make` imports, each a small part of it."""

    def __init__(self, steps: Sequence[str], make: Callable[[], T]) -> None:
        self._steps = steps
        self._make = make
        self._hurry = Event()
        self._begun: Future[T] | None = None
        self._executor = ThreadPoolExecutor(1)
        # Its thread is there from the start: later, user code may have taken every process that there may be.
        self._executor.submit(int)
        sys.setswitchinterval(_SWITCH_SECONDS)

    def begin(self) -> Future[T]:
        """Have it made by and by. What fails is told in the log, and tried again by who needs it."""
        if self._begun is None:
            self._begun = self._executor.submit(self._run)
        return self._begun

    def get(self) -> T:
        """Give it, made now if it is not there.

        Raises:
            InternalError: It could not be made.
        """
        self._hurry.set()
        made = self.begin()
        failure = made.exception()
        if failure is not None:
            self._begun = None
            raise InternalError(f"the sandbox's tools could not be made ({failure!r}); its log says how") from failure
        return made.result()

    def close(self) -> None:
        """Begin nothing more; what is under way ends with the process."""
        self._hurry.set()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> T:
        try:
            self._import()
            return self._make()
        except Exception:
            # Who needs it may never come.
            traceback.print_exc(file=sys.stderr)
            raise

    def _import(self) -> None:
        for step in self._steps:
            if self._hurry.is_set():
                return
            ran, waited = account()
            import_module(step)
            now_ran, now_waited = account()
            self._hurry.wait(_BUSY_SECONDS if now_waited - waited > now_ran - ran else _PAUSE_SECONDS)


def account() -> tuple[int, int]:
    """Give the nanoseconds that this thread was on a processor, and that it waited for one."""
    try:
        ran, waited, _ = _ACCOUNT.read_text().split()
    except (OSError, ValueError):
        # gVisor keeps none.
        return 0, 0
    return int(ran), int(waited)
