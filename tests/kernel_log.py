"""The kernel's lines about killed processes, in the report of each test that fails.

A sandbox that is gone with signal 9 may have been ended for want of memory, by whom and where only the kernel knows.
Records are read as the kernel's Documentation/ABI/testing/dev-kmsg has them; only root may.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Generator
from contextlib import suppress

import pytest

TELLING = re.compile(r"oom|out of memory|killed process|segfault|general protection|hung task", re.IGNORECASE)
MOST_LINES = 40


class KernelLog:
    """Reads on from where it was opened, and keeps the last lines that tell of killed processes."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        """Open the log where this process may."""
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)

    def lines(self) -> list[str]:
        """Return the last lines that tell of killed processes since it was opened."""
        while (record := self._next()) is not None:
            text = record.partition(";")[2].splitlines()[:1]
            self._lines += [line for line in text if TELLING.search(line)]
        return list(self._lines)

    def _next(self) -> str | None:
        while self._fd >= 0:
            try:
                return os.read(self._fd, 8192).decode("utf-8", "replace") or None
            except BrokenPipeError:
                # Records were overwritten before they were read: the next read goes on after them.
                continue
            except OSError:
                return None
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the kernel's lines to the report of a test that failed."""
        report = yield
        if report.failed and (lines := self.lines()):
            report.sections.append(("the kernel's log, of killed processes", "\n".join(lines)))
        return report

    def pytest_unconfigure(self) -> None:
        """Close the log."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
