"""What the commands on images do, in the store that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.terminal.progress import progress_bar
from sandmeshd.images.collection import Freed
from sandmeshd.images.image import PulledImage
from sandmeshd.images.progress import PullProgress
from sandmeshd.images.reference import parse_reference
from sandmeshd.images.store import ImageStore
from sandmeshd.mesh.settings import MeshSettings


@dataclass(frozen=True)
class ImageRecord:
    """An image as listings have it."""

    name: str
    digest: str
    layers: int
    size: int

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def open_store(config: Path | None) -> ImageStore:
    """Return the store that the settings name."""
    return store_of(read_settings(config))


def store_of(settings: MeshSettings) -> ImageStore:
    """Return the store that settings name."""
    return ImageStore(settings.image_store, settings.state_directory / "images")


async def pull_image(config: Path | None, name: str) -> PulledImage:
    """Pull an image, with a progress bar."""
    with progress() as report:
        return await open_store(config).pull(_whole(name), progress=report)


async def import_image(config: Path | None, file: Path, name: str) -> PulledImage:
    """Import an image, with a progress bar."""
    with progress() as report:
        return await open_store(config).import_image(file, name, progress=report)


async def push_image(config: Path | None, name: str, target: str) -> str:
    """Push an image, with a progress bar; return its name there."""
    with progress() as report:
        return await open_store(config).push(find_image(config, name), target, progress=report)


async def remove_images(config: Path | None, names: list[str]) -> Freed:
    """Remove images by name; return what became free."""
    store, whole = open_store(config), Freed()
    for name in names:
        freed = await store.remove(_whole(name))
        whole.references += freed.references
        whole.size += freed.size
    return whole


async def prune_images(config: Path | None, unused_seconds: float) -> Freed:
    """Remove what is unused; return what became free."""
    return await open_store(config).prune(unused_seconds=unused_seconds)


def find_image(config: Path | None, name: str) -> PulledImage:
    """Return an image that is here.

    Raises:
        InvalidArgument: There is none of that name.
    """
    image = open_store(config).find(_whole(name))
    if image is None:
        raise InvalidArgument(f"there is no image {name} here: `sandmesh image pull {name}` gets it")
    return image


def list_records(config: Path | None) -> list[ImageRecord]:
    """Return the images that are here."""
    return [
        ImageRecord(parse_reference(one.reference).familiar, one.digest, len(one.layers), one.size)
        for one in open_store(config).list_all()
    ]


def to_json(image: PulledImage) -> dict[str, Any]:
    """Return an image as JSON values."""
    whole = asdict(image)
    return {**whole, "layers": [str(layer) for layer in image.layers]}


def _whole(name: str) -> str:
    """Return a name with the path of a file, which people write as they write others: oci:layout."""
    transport, colon, rest = name.partition(":")
    is_path = transport in {"oci", "oci-archive", "docker-archive", "tar"} and Path(rest.partition(":")[0]).exists()
    return f"{transport}{colon}{Path(rest).absolute()}" if is_path else name


@contextmanager
def progress() -> Generator[Callable[[PullProgress], None]]:
    """Yield what shows the progress of a pull or push."""
    with progress_bar() as bar:
        yield lambda step: bar(step.message, step.fraction)
