"""The findings of `sandmesh doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """The severity of a finding: BAD prevents something, WARNING makes it worse than it could be."""

    GOOD = "ok"
    WARNING = "warning"
    BAD = "problem"
    UNKNOWN = "-"


GROUPS = {
    Health.BAD: "Problems",
    Health.GOOD: "Works",
    Health.WARNING: "Limits of this machine",
    Health.UNKNOWN: "Optional",
}
"""What a person reads findings under, in this order."""


@dataclass(frozen=True)
class Finding:
    """The result of one check; `fix` is what to do, or empty."""

    part: str
    name: str
    health: Health
    seen: str
    fix: str = ""


def good(part: str, name: str, seen: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(part, name, Health.GOOD, seen)


def warning(part: str, name: str, seen: str, fix: str) -> Finding:
    """Return a finding that something works, though not as well as it could."""
    return Finding(part, name, Health.WARNING, seen, fix)


def bad(part: str, name: str, seen: str, fix: str) -> Finding:
    """Return a finding that something does not work."""
    return Finding(part, name, Health.BAD, seen, fix)


def unknown(part: str, name: str, seen: str) -> Finding:
    """Return a finding about what a mesh does without."""
    return Finding(part, name, Health.UNKNOWN, seen)
