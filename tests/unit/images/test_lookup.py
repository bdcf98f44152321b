"""What is read of a real registry about an image whose layers somebody else pulls."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh.errors import InvalidArgument
from sandmeshd.images.lookup import look_up
from sandmeshd.images.reference import Reference, parse_reference
from tests.image_layouts import file_entry, make_image, make_index, make_tar
from tests.registry import Registry, running_registry

pytestmark = [pytest.mark.needs("registry"), pytest.mark.needs("root")]
LAYER = make_tar(file_entry("a", b"b"))


@pytest.fixture(scope="module")
def registry() -> Generator[Registry]:
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/var/tmp") as made, running_registry(Path(made)) as one:
        yield one


def reference(name: str) -> Reference:
    found = parse_reference(name)
    assert isinstance(found, Reference)
    return found


async def test_an_index_is_named_by_its_digest_and_read_for_this_platform(registry: Registry, folder: Path) -> None:
    own = make_image([LAYER], {"User": "7:8", "Volumes": {"/data": {}}, "WorkingDir": "/srv"})
    image = make_index(amd64=own, arm64=make_image([LAYER], {"User": "other"}, architecture="arm64"))
    found = reference(registry.push(image, "team/both:1"))
    digest, config = await look_up(registry.settings(folder), found)
    assert digest == image.manifest["digest"]
    assert (config.user, config.volumes, config.working_dir) == ("7:8", ("/data",), "/srv")
    only = reference(registry.push(make_image([LAYER], architecture="riscv64"), "team/other:1"))
    with pytest.raises(InvalidArgument, match="is for linux/riscv64, and this machine is linux/amd64"):
        await look_up(registry.settings(folder), only)


async def test_a_configuration_that_is_not_what_its_digest_says_is_refused(registry: Registry, folder: Path) -> None:
    image = make_image([LAYER], {"User": "root"})
    found = reference(registry.push(image, "team/changed:1"))
    config = next(digest for digest, data in image.blobs.items() if b'"rootfs"' in data)
    path = registry.blob_path(config)
    path.write_bytes(path.read_bytes().replace(b"root", b"toor"))
    with pytest.raises(InvalidArgument, match="sent something else"):
        await look_up(registry.settings(folder), found)
