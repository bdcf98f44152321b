"""What a release's users read: the part of the changelog that is of its version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def notes_of(version: str, changelog: str) -> str:
    """Return the part of a version, and for a version under development that of what is unreleased.

    Raises:
        ValueError: The changelog has no such part.
    """
    heading = "Unreleased" if ".dev" in version else version
    found = re.search(rf"^## \[{re.escape(heading)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"CHANGELOG.md has no part of {version}: name it `## [{version}] - DATE`")
    return found[1].strip()


def write_notes(version: str, target: Path) -> Path:
    """Write the notes of a version."""
    text = notes_of(version, (ROOT / "CHANGELOG.md").read_text())
    upgrade = (
        'Before an upgrade read "Upgrade" in docs/operate.md, and docs/support.md for which versions fit together.'
    )
    target.write_text(f"# sandmesh {version}\n\n{upgrade}\n\n{text}\n")
    return target
