"""Images in a directory of the OCI Image Layout 1.1: `oci:DIR` or `oci:DIR:NAME`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument
from sandmeshd.images.documents import LARGEST_DOCUMENT, Descriptor, Index, parse_document
from sandmeshd.images.sources.source import Resolved

_CHUNK: Final = 1 << 20
NAME: Final = "org.opencontainers.image.ref.name"


class OciLayout:
    """A directory with an `index.json` and blobs by digest."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def read_manifest(self, wanted: str) -> Resolved:
        """Return the manifest or index of a name in the layout's index, or of a digest; empty: the only one."""
        if wanted.startswith("sha256:"):
            return Resolved(await asyncio.to_thread(self._read, f"blobs/sha256/{wanted.removeprefix('sha256:')}"), "")
        index = parse_document(await asyncio.to_thread(self._read, "index.json"), Index)
        named = [manifest for manifest in index.manifests if not wanted or manifest.annotations.get(NAME) == wanted]
        if len(named) != 1:
            known = (
                ", ".join(sorted(manifest.annotations.get(NAME, manifest.digest) for manifest in index.manifests))
                or "none"
            )
            raise InvalidArgument(f"{self._directory} has not one image named {wanted!r}: name one of {known}")
        data = await asyncio.to_thread(self._read, f"blobs/sha256/{named[0].hex}")
        return Resolved(data, named[0].media_type)

    async def read_blob(self, blob: Descriptor, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield a blob's content."""
        try:
            with await asyncio.to_thread((self._directory / "blobs" / "sha256" / blob.hex).open, "rb") as file:
                file.seek(offset)
                while data := await asyncio.to_thread(file.read, _CHUNK):
                    yield data
        except OSError as error:
            raise InvalidArgument(f"{self._directory} lacks the blob {blob.digest}: {error.strerror}") from None

    def _read(self, name: str) -> bytes:
        try:
            with (self._directory / name).open("rb") as file:
                return file.read(LARGEST_DOCUMENT + 1)
        except OSError as error:
            message = f"{self._directory} is not an OCI image layout: {name}: {error.strerror}"
            raise InvalidArgument(message) from None
