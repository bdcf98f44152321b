"""A store of images for each test."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.user_namespaces.removal import remove_tree

collect_ignore = [] if os.environ.get("SANDMESH_TEST_LARGE_IMAGE") else ["test_large_image.py"]


@pytest.fixture
def folder() -> Generator[Path]:
    """A directory whose files may have any owner."""
    made = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    yield made
    remove_tree(made)


@pytest.fixture
def store(folder: Path) -> ImageStore:
    return ImageStore(ImageSettings(images=folder / "images", image_bytes=64 << 20, image_files=10_000), folder)
