"""Holds the processes of a sandbox still for a moment, so that what they write is seen as it was at one time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from sandmeshd.agent.userland.process_table import others

_LONGEST_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.001
_STANDING: Final = frozenset("TtZXI")


@contextmanager
def held_still() -> Generator[None]:
    """Stop every process but this one for the time of a block; those that stood already are not let run by it.

    Only PID 1 does it: of any other process its sandbox's processes are not all there is.
    """
    if os.getpid() != 1:
        yield
        return
    before = {pid for pid, fields in others() if fields[0] in _STANDING}
    # In one step for all of them: none can start another meanwhile.
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGSTOP)
    try:
        _wait()
        yield
    finally:
        # The youngest first: one that waits for its children must not find them stopped.
        for pid in sorted((pid for pid, _ in others() if pid not in before), reverse=True):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _wait() -> None:
    """Wait until they stand; one that is in the middle of a long system call does nothing of its own."""
    end = time.monotonic() + _LONGEST_SECONDS
    while any(fields[0] not in _STANDING for _, fields in others()) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
