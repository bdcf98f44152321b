"""What tests in several processes left on the machine, checked by the process that started these."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import leaks

NOWHERE = Path("/nonexistent")
"""Each process looks for mounts in its own temporary files by itself."""


class MachineOfAll:
    """Fails a run whose processes left cgroups, mounts or folders; none of them can tell its own from the others'."""

    def __init__(self) -> None:
        """Look at the machine before they start."""
        self._before = leaks.inspect(NOWHERE)
        self._left: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Look again once they have ended."""
        stays = leaks.settled(lambda: leaks.inspect(NOWHERE), self._before, leaks.GRACE_SECONDS)
        self._left = stays.left_since(self._before)
        if self._left:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was left."""
        if self._left:
            terminalreporter.section("left on the machine")
            for line in self._left:
                terminalreporter.line(line)
