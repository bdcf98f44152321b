"""Pushes an image: the blobs that a registry lacks, then the manifest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.images.blobs import Blobs
from sandmeshd.images.documents import MANIFESTS, Descriptor, Manifest
from sandmeshd.images.progress import PullProgress, Report
from sandmeshd.images.reference import Reference
from sandmeshd.images.registry.client import RegistryClient
from sandmeshd.images.registry.connection import open_session, url_of
from sandmeshd.images.settings import ImageSettings

_CHUNK: Final = 1 << 20


async def push_image(
    settings: ImageSettings, target: Reference, blobs: Blobs, image: tuple[str, Manifest], progress: Report
) -> None:
    """Push an image, given by its manifest's digest and the manifest.

    Raises:
        PermissionDenied: The registry wants credentials.
        RuntimeUnavailable: The registry does not respond.
    """
    digest, manifest = image
    url = url_of(target.registry)
    parts = (manifest.config, *manifest.layers)
    total, done = sum(part.size for part in parts), 0
    async with open_session(settings, url) as session:
        client = RegistryClient(settings, session, url, target)
        for part in parts:
            await _push_blob(client, blobs.path(part.digest), part, _reporting(progress, done, total))
            done += part.size
        data = blobs.read(digest) or b""
        headers = {"Content-Type": manifest.media_type or MANIFESTS[0]}
        async with client.request("PUT", f"manifests/{target.wanted}", headers=headers, data=data):
            pass


def _reporting(progress: Report, done: int, total: int) -> Callable[[int], None]:
    return lambda size: progress(PullProgress("pushing", done + size, total))


async def _push_blob(client: RegistryClient, path: Path, blob: Descriptor, progress: Callable[[int], None]) -> None:
    try:
        async with client.request("HEAD", f"blobs/{blob.digest}"):
            progress(blob.size)
            return
    except InvalidArgument:
        pass
    async with client.request("POST", "blobs/uploads/") as response:
        location = response.headers.get("Location", "")
        if not location:
            raise RuntimeUnavailable("the registry does not say where to upload to", {"fix": "try later"})
        where = urljoin(str(response.url), location)
    separator = "&" if "?" in where else "?"
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
    whole = f"{where}{separator}digest={blob.digest}"
    async with client.request("PUT", whole, headers=headers, data=_read(path, progress)):
        progress(blob.size)


async def _read(path: Path, progress: Callable[[int], None]) -> AsyncIterator[bytes]:
    done = 0
    with await asyncio.to_thread(path.open, "rb") as file:
        while data := await asyncio.to_thread(file.read, _CHUNK):
            yield data
            done += len(data)
            progress(done)
