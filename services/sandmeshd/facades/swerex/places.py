"""Whose runtime a request is for."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RuntimePlace:
    """Whose runtime it is, of which template, and what its client calls it."""

    key: str
    template: str
    name: str
    owner: str = field(default="", compare=False)
    """Whom its use counts for."""
