"""What a create's time went to, by phases, which are part of the event that the sandbox is usable.

Each is measured where it happens; those of a driver in another process come with its response.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from sandmesh.shared.traces.context import step_of


class Phases:
    """The phases of one create, in the order in which they began; one within another counts only there."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.within = 0.0
        """How long phases took within the one that is measured now."""

    def add(self, name: str, seconds: float) -> None:
        """Add to a phase; there may be several of a name, as of creates that are tried again."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


_current: ContextVar[Phases | None] = ContextVar("phases", default=None)


@contextmanager
def recorded_phases() -> Generator[Phases]:
    """Record the phases of a block, those of tasks that it starts included; within another such block, its own."""
    outer = _current.get()
    phases = outer or Phases()
    token = _current.set(phases)
    try:
        yield phases
    finally:
        _current.reset(token)


def current_phases() -> Mapping[str, float]:
    """Return the phases of the present create so far, in seconds."""
    phases = _current.get()
    return {} if phases is None else phases.seconds


def add_phases(seconds: Mapping[str, float]) -> None:
    """Add what another process measured within the present phase."""
    phases = _current.get()
    if phases is not None:
        for name, each in seconds.items():
            phases.add(name, each)
            phases.within += each


@contextmanager
def measured(name: str) -> Generator[None]:
    """Measure a block as a phase of the present create, if it is a part of one."""
    phases = _current.get()
    if phases is None:
        yield
        return
    phases.seconds.setdefault(name, 0.0)
    outer, phases.within = phases.within, 0.0
    began = time.monotonic()
    try:
        yield
    finally:
        took = time.monotonic() - began
        phases.add(name, max(0.0, took - phases.within))
        phases.within = outer + took


@contextmanager
def phase(name: str, **attributes: str) -> Generator[None]:
    """Measure a block, and make it a span where traces are recorded."""
    with step_of(name, {f"sandmesh.{key}": value for key, value in attributes.items()}), measured(name):
        yield
