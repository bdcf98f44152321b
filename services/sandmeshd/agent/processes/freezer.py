"""Stops the processes of a sandbox for a moment, so that their files are seen in one consistent state."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from sandmeshd.agent.userland.core.process_table import others

_LONGEST_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.001
_STOPPED: Final = frozenset("TtZXI")


@contextmanager
def frozen() -> Generator[None]:
    """Stop every other process for the time of a block; those that were stopped before stay so after it.

    Only PID 1 does it: any other process would also stop processes outside of the sandbox.
    """
    if os.getpid() != 1:
        yield
        return
    before = {pid for pid, fields in others() if fields[0] in _STOPPED}
    # All in one step, so that none can start another meanwhile.
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGSTOP)
    try:
        _wait()
        yield
    finally:
        # The youngest first: a process that waits for its children must not find them stopped.
        for pid in sorted((pid for pid, _ in others() if pid not in before), reverse=True):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _wait() -> None:
    """Wait until they are stopped; one in a long system call cannot do anything else meanwhile."""
    end = time.monotonic() + _LONGEST_SECONDS
    while any(fields[0] not in _STOPPED for _, fields in others()) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
