"""An image of 2 GB in 100,000 files from a real registry, on request: it takes minutes, and 6 GB of disk.

SANDMESH_TEST_LARGE_IMAGE is set to anything.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

from sandmesh.errors import TooLarge
from sandmeshd.images.store import ImageStore
from tests.image_layouts import file_entry, make_image, make_tar
from tests.registry import running_registry

pytestmark = [pytest.mark.needs("registry"), pytest.mark.needs("root"), pytest.mark.timeout(3600)]

LAYERS, FILES, BYTES = 10, 10_000, 20_000


async def test_an_image_of_a_hundred_thousand_files_is_pulled_whole(folder: Path) -> None:
    content = os.urandom(BYTES)
    layers = [
        make_tar(*(file_entry(f"{layer}/{number % 100}/{number}", content) for number in range(FILES)))
        for layer in range(LAYERS)
    ]
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/var/tmp") as made, running_registry(Path(made)) as registry:
        name = registry.push(make_image(layers, compress=bytes), "large:1")
        small = ImageStore(registry.settings(folder / "small", image_files=LAYERS * FILES - 1), folder)
        with pytest.raises(TooLarge):
            await small.pull(name)
        store = ImageStore(registry.settings(folder / "images"), folder)
        begun = time.perf_counter()
        image = await store.pull(name)
        first = time.perf_counter()
        assert (await store.pull(name)).digest == image.digest
        seconds = f"pulled in {first - begun:.1f} s, again in {time.perf_counter() - first:.3f} s"
        sys.stdout.write(f"{seconds}, load average {os.getloadavg()[0]:.1f}\n")
    assert image.size == LAYERS * FILES * BYTES
    assert sum(path.is_file() for layer in image.layers for path in layer.rglob("*")) == LAYERS * FILES
    assert image.files >= LAYERS * FILES
