"""What the pages of the gateway and of the console have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Final

LOADING: Final = "loading.js"
"""The script that comes first, and sees to it that a page is never left half loaded."""


def scripts() -> dict[str, bytes]:
    """Return the scripts by their names."""
    return {LOADING: Path(__file__).with_name(LOADING).read_bytes()}
