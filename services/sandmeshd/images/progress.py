"""How far a pull, a push or a build is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class PullProgress:
    """How far a pull is: what it does, and bytes done of all that are known of."""

    message: str
    done: int = 0
    total: int = 0

    @property
    def fraction(self) -> float:
        """How much is done, from 0 to 1; negative where it is unknown."""
        return min(1.0, self.done / self.total) if self.total else -1.0


Report = Callable[[PullProgress], None]
