"""A mutant: a protection, the patch that removes it, and the test that must turn red then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """A protection, the text of a file that makes it, what stands there without it, and the test that notices."""

    protection: str
    file: str
    old: str
    new: str
    test: str

    def apply(self, root: Path) -> None:
        """Remove the protection from a copy of the sources.

        Raises:
            ValueError: The text is not there just once: the patch no longer fits.
        """
        path = root / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times what the patch replaces: {self.old!r}")
        path.write_text(text.replace(self.old, self.new))
