"""What attacks did."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """The attempts of one field, and those that broke something."""

    name: str
    tried: int = 0
    broken: list[str] = field(default_factory=list[str])

    def note(self, attempt: str, *, held: bool) -> None:
        """Count an attempt."""
        self.tried += 1
        if not held:
            self.broken.append(attempt)
