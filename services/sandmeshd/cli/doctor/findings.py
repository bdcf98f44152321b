"""What `sandmesh doctor` finds: a name, how good it is, what was seen, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """How good a finding is: BAD stands in somebody's way, WORSE than could be is a warning."""

    GOOD = "ok"
    WARNING = "warning"
    BAD = "problem"
    UNKNOWN = "-"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `fix` says what to do, empty where there is nothing to do."""

    part: str
    name: str
    health: Health
    seen: str
    fix: str = ""


def good(part: str, name: str, seen: str) -> Finding:
    """Make one of what is as it should be."""
    return Finding(part, name, Health.GOOD, seen)


def warning(part: str, name: str, seen: str, fix: str) -> Finding:
    """Make one of what works, though not as well as it could."""
    return Finding(part, name, Health.WARNING, seen, fix)


def bad(part: str, name: str, seen: str, fix: str) -> Finding:
    """Make one of what stands in the way."""
    return Finding(part, name, Health.BAD, seen, fix)


def unknown(part: str, name: str, seen: str) -> Finding:
    """Make one of what is neither good nor bad."""
    return Finding(part, name, Health.UNKNOWN, seen)
