"""The table at the end of a run: what each part of the tests ran and skipped, and how long it took."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PARTS = ("unit", "mesh", "conformance", "isolation", "fuzz", "integration", "faults", "typing")


@dataclass
class Part:
    """What happened in one part."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reasons: set[str] = field(default_factory=set[str])


class PartsTable:
    """Counts reports and prints the table."""

    def __init__(self) -> None:
        """Count from nothing."""
        self._parts: defaultdict[str, Part] = defaultdict(Part)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one report; set-up and tear-down count by their time, and where they go wrong."""
        part = self._parts[part_of(report.nodeid)]
        part.seconds += report.duration
        part.failed += report.failed
        part.skipped += report.skipped
        part.passed += report.passed and report.when == "call"
        if report.skipped and isinstance(report.longrepr, tuple):
            part.reasons.add(str(report.longrepr[2]).removeprefix("Skipped: "))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line a part."""
        terminalreporter.section("parts")
        terminalreporter.line(f"{'part':14}{'passed':>8}{'failed':>8}{'skipped':>9}{'minutes':>9}")
        for name in (*PARTS, *sorted(set(self._parts) - set(PARTS))):
            part = self._parts[name]
            counts = f"{part.passed:>8}{part.failed:>8}{part.skipped:>9}{part.seconds / 60:>9.2f}"
            reasons = f"  {'; '.join(sorted(part.reasons))}" if part.reasons else ""
            terminalreporter.line(f"{name:14}{counts}{reasons}")


def part_of(nodeid: str) -> str:
    """Return the part that a test is in: the folder below tests/."""
    parts = Path(nodeid.split("::", maxsplit=1)[0]).parts
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else "other"
