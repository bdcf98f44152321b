"""The scripts of the store, read from package data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

_LIBRARY = "library.lua"


@dataclass(frozen=True)
class Script:
    """One script: its whole source, the shared part included, and the name that a server knows it by."""

    source: str
    sha: str


def load_scripts() -> dict[str, Script]:
    """Read every script, by its file's name without the ending."""
    folder = resources.files("sandmeshd.store") / "scripts"
    sources = {entry.name: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".lua")}
    library = sources.pop(_LIBRARY)
    return {name.removesuffix(".lua"): _script(library + source) for name, source in sources.items()}


def _script(source: str) -> Script:
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
