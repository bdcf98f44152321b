"""Images in files and directories: found again as long as those have not changed."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sandmesh.errors import PermissionDenied
from sandmeshd.drivers.bubblewrap import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.images.source import ImageSource
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.image_layouts import MadeImage, file_entry, make_image, make_tar


def _layout(image: MadeImage, place: Path) -> None:
    remove_tree(place)
    image.write_layout(place, "one")


def _oci_archive(image: MadeImage, place: Path) -> None:
    folder = place.with_name("layout")
    _layout(image, folder)
    with tarfile.open(place, "w") as archive:
        archive.add(folder, ".")


def _docker_archive(image: MadeImage, place: Path) -> None:
    """Write what `docker save` writes."""
    described = json.loads(image.blobs[image.manifest["digest"]])
    config, *layers = (one["digest"] for one in (described["config"], *described["layers"]))
    names = {digest: f"blobs/sha256/{digest.removeprefix('sha256:')}" for digest in (config, *layers)}
    saved = [{"Config": names[config], "RepoTags": ["one:1"], "Layers": [names[layer] for layer in layers]}]
    files = {name: image.blobs[digest] for digest, name in names.items()}
    files["manifest.json"] = json.dumps(saved).encode()
    place.write_bytes(make_tar(*(file_entry(name, data) for name, data in files.items())))


def _root(image: MadeImage, place: Path) -> None:
    (layer,) = json.loads(image.blobs[image.manifest["digest"]])["layers"]
    place.write_bytes(image.blobs[layer["digest"]])


@pytest.mark.parametrize(
    ("transport", "write", "name"),
    [
        ("oci", _layout, ""),
        ("oci", _layout, ":one"),
        ("oci-archive", _oci_archive, ""),
        ("docker-archive", _docker_archive, ":one:1"),
        ("tar", _root, ""),
    ],
)
async def test_an_image_is_pulled_again_where_its_file_has_changed(
    folder: Path,
    store: ImageStore,
    transport: str,
    write: Callable[[MadeImage, Path], None],
    name: str,
) -> None:
    place = folder / "image"
    reference = f"{transport}:{place}{name}"
    paths = MeshPaths("files", folder / "state", folder / "run")
    settings = BubblewrapSettings(paths=paths, own_workspaces=True, image_store=ImageSettings(images=store.directory))
    source, shared = ImageSource(settings), settings.model_copy(update={"own_workspaces": False})

    async def read(of: ImageSource = source) -> str:
        async with of.held(reference) as (image, _):
            return (image.layers[0] / "version").read_text()

    write(make_image([make_tar(file_entry("version", b"1"))], compress=bytes), place)
    with pytest.raises(PermissionDenied, match="sandmesh image pull"):
        await read(ImageSource(shared))
    assert await read() == "1"
    write(make_image([make_tar(file_entry("version", b"2"))], compress=bytes), place)
    assert await read(ImageSource(shared)) == "1", "users get what the administrator pulled"
    assert await read() == "2"
    assert await read(ImageSource(shared)) == "2"
    before = next((store.directory / "references").iterdir()).stat()
    assert await read() == "2"
    assert next((store.directory / "references").iterdir()).stat() == before, "it was not pulled again"
    remove_tree(place) if place.is_dir() else place.unlink()
    assert await read() == "2", "an image outlives its file"
