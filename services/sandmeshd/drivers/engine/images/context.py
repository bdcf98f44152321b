"""The context of the image of a mesh's services: both packages whole, with their metadata."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

METADATA = ("METADATA", "entry_points.txt")
"""The files with the drivers' entry points and the version."""


def fill_whole(context: Path, packages: Mapping[str, Path]) -> Path:
    """Lay a context out like the repository; `packages` are directories by their path in it."""
    for name, path in packages.items():
        shutil.copytree(path, context / name, ignore=shutil.ignore_patterns("__pycache__"))
        # Images that are shipped in the package have a path of their own.
        if path.name == "sandmeshd":
            shutil.rmtree(context / name / "image_sources", ignore_errors=True)
    installed = distribution("sandmesh")
    (context / "metadata").mkdir()
    for name in METADATA:
        (context / "metadata" / name).write_text(installed.read_text(name) or "")
    return context
