"""The context of the image of a mesh's services: both packages whole, with what says how they are installed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

METADATA = ("METADATA", "entry_points.txt")
"""What tells of drivers and of the version."""


def fill_whole(context: Path, packages: Mapping[str, Path]) -> Path:
    """Lay a context out as the repository is; `packages` are directories by their place in it."""
    for name, path in packages.items():
        # Where images come with the package they have a place of their own.
        left_out = shutil.ignore_patterns("__pycache__", *(["images"] if path.name == "sandmeshd" else []))
        shutil.copytree(path, context / name, ignore=left_out)
    installed = distribution("sandmesh")
    (context / "metadata").mkdir()
    for name in METADATA:
        (context / "metadata" / name).write_text(installed.read_text(name) or "")
    return context
