"""What a run has finished, kept in a file, so that a second run does the rest where the first died of a signal.

SANDMESH_TEST_FINISHED names the file. A test that was running when its process died is written there as begun only: it
runs again, and `.ci/lane` prints its name.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FINISHED = "SANDMESH_TEST_FINISHED"
BEGUN, ENDED = "begun ", "ended "


class Resuming:
    """Writes each test's begin and end to a file, and leaves out those that have ended according to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has ended."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        ended = {line.removeprefix(ENDED) for line in lines if line.startswith(ENDED)}
        left_out = [item for item in items if item.nodeid in ended]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in ended]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write that a test has begun."""
        self._write(BEGUN + nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write that a test has ended, however it did."""
        self._write(ENDED + nodeid)

    def _write(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(line + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Register the above where a file is named: for this process alone, and for none that its tests start."""
    path = os.environ.pop(FINISHED, "")
    if path:
        config.pluginmanager.register(Resuming(Path(path)), "sandmesh-resuming")
