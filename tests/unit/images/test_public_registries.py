"""Where a registry may lead."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh.errors import PermissionDenied
from sandmeshd.images.reference import Reference, parse_reference
from sandmeshd.images.registry.authentication import Challenge, authorize
from sandmeshd.images.registry.client import RegistryClient
from sandmeshd.images.registry.connection import open_session
from sandmeshd.images.store import ImageStore
from tests.image_layouts import file_entry, make_image, make_tar
from tests.registry import Registry, running_registry

pytestmark = [pytest.mark.needs("registry"), pytest.mark.needs("root")]


@pytest.fixture
def registry() -> Generator[Registry]:
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/var/tmp") as made, running_registry(Path(made)) as one:
        yield one


async def test_a_registry_leads_to_no_address_of_this_network_unless_it_is_there_itself(
    registry: Registry, folder: Path
) -> None:
    name = registry.push(make_image([make_tar(file_entry("inner"))]), "inner/one:1")
    shared = {"image_public_only": True}
    with pytest.raises(PermissionDenied, match="which is loopback, and users may not pull there"):
        await ImageStore(registry.settings(folder / "images", **shared), folder).pull(name)
    for named in ({"image_registries": ("127.0.0.1*",)}, {"image_mirrors": (f"docker.io=https://{registry.host}",)}):
        wanted = name if "image_registries" in named else "docker.io/inner/one:1"
        await ImageStore(registry.settings(folder / "images", **shared, **named), folder).pull(wanted)
    # As a redirect or a realm of one that is elsewhere.
    settings, reference = registry.settings(folder / "images"), parse_reference("registry.invalid/inner/one:1")
    async with open_session(settings, "https://registry.invalid") as session:
        assert isinstance(reference, Reference)
        client = RegistryClient(settings, session, f"https://{registry.host}", reference)
        with pytest.raises(PermissionDenied, match="leads to an address of this network"):
            await client.read_manifest("1")
        for realm in (f"https://{registry.host}/token", "https://[::ffff:169.254.169.254]/token"):
            with pytest.raises(PermissionDenied, match="which no public registry may lead to"):
                await authorize(session, Challenge("bearer", realm), None, is_plain=False)
