"""Selects the source that a reference names."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument
from sandmeshd.images.reference import AnyReference, Reference
from sandmeshd.images.registry.source import open_registry
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.sources import archives
from sandmeshd.images.sources.oci_layout import OciLayout
from sandmeshd.images.sources.source import RepositorySource
from sandmeshd.runtime.user_namespaces.removal import remove_tree

_LAY_OUT: Final = {
    "oci-archive": archives.lay_out_oci_archive,
    "docker-archive": archives.lay_out_docker_archive,
    "tar": archives.lay_out_root,
}


@asynccontextmanager
async def open_source(
    settings: ImageSettings, reference: AnyReference, scratch: Path
) -> AsyncGenerator[RepositorySource]:
    """Open the source of a reference; an archive is laid out in a directory below `scratch` until the end."""
    if isinstance(reference, Reference):
        async with open_registry(settings, reference) as registry:
            yield registry
    elif reference.transport == "oci":
        yield OciLayout(reference.path)
    else:
        if not await asyncio.to_thread(reference.path.is_file):
            raise InvalidArgument(f"there is no file {reference.path}")
        directory = scratch / f"archive-{secrets.token_hex(8)}"
        lay_out = _LAY_OUT[reference.transport]
        try:
            await asyncio.to_thread(lay_out, reference.path, directory, reference.name, settings.image_bytes)
            yield OciLayout(directory)
        finally:
            await asyncio.to_thread(remove_tree, directory)
