"""Blobs by digest: manifests, configurations and layers as registries have them.

A blob has its name only when its digest was checked. What was downloaded of one before a kill or a lost connection
stays in `partial`, and the download goes on there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument
from sandmeshd.images.documents import LARGEST_DOCUMENT, Descriptor
from sandmeshd.images.file_locks import locked
from sandmeshd.images.sources.source import RepositorySource

_CHUNK: Final = 1 << 20


class Blobs:
    """The blobs below a directory."""

    def __init__(self, directory: Path, locks: Path) -> None:
        self.directory = directory
        self.partial = directory.with_name("partial")
        self._locks = locks

    def path(self, digest: str) -> Path:
        """Return where a blob is or would be."""
        return self.directory / digest.removeprefix("sha256:")

    def read(self, digest: str) -> bytes | None:
        """Return a document, None if it is not here."""
        try:
            return self.path(digest).read_bytes()
        except FileNotFoundError:
            return None

    def add(self, data: bytes, digest: str) -> None:
        """Add a document.

        Raises:
            InvalidArgument: Its digest is another one.
        """
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if found != digest:
            raise _wrong(digest, found)
        if not self.path(digest).exists():
            fresh = self.partial / f"{self.path(digest).name}.{os.getpid()}"
            fresh.write_bytes(data)
            fresh.rename(self.path(digest))

    async def fetch_document(self, source: RepositorySource, blob: Descriptor) -> bytes:
        """Return a document, from here or else from its source.

        Raises:
            InvalidArgument: It is too large, or not what its digest says.
        """
        if blob.size > LARGEST_DOCUMENT:
            raise InvalidArgument(f"{blob.digest} is larger than a document may be ({LARGEST_DOCUMENT} bytes)")
        await self.fetch(source, blob)
        return await asyncio.to_thread(self.path(blob.digest).read_bytes)

    async def fetch(
        self, source: RepositorySource, blob: Descriptor, progress: Callable[[int], None] = lambda size: None
    ) -> None:
        """Download a blob unless it is here; one process does it, the others wait. `progress` gets its bytes so far.

        Raises:
            InvalidArgument: It is not what its digest says; nothing of it stays.
            RuntimeUnavailable: The source does not respond; what came stays for the next time.
        """
        target = self.path(blob.digest)
        if target.exists():
            return
        partial = self.partial / blob.hex
        async with locked(self._locks / f"blob-{blob.hex}"):
            if target.exists():
                return
            await self._download(source, blob, partial, progress)
            found = await asyncio.to_thread(_digest, partial)
            if found != blob.digest:
                await asyncio.to_thread(partial.unlink)
                raise _wrong(blob.digest, found)
            await asyncio.to_thread(_name_whole, partial, target)

    async def _download(
        self, source: RepositorySource, blob: Descriptor, partial: Path, progress: Callable[[int], None]
    ) -> None:
        with await asyncio.to_thread(partial.open, "ab") as out:
            size = out.tell() if out.tell() <= blob.size else out.truncate(0)
            if size == blob.size:
                return
            async for data in source.read_blob(blob, size):
                size += len(data)
                if size > blob.size:
                    await asyncio.to_thread(partial.unlink)
                    raise InvalidArgument(
                        f"{blob.digest} is larger than the {blob.size} bytes that its manifest states"
                    )
                await asyncio.to_thread(out.write, data)
                progress(size)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            digest.update(data)
    return f"sha256:{digest.hexdigest()}"


def _name_whole(partial: Path, target: Path) -> None:
    """Name a file whose content is on disk: after a crash of the machine it is whole or not there."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.rename(target)


def _wrong(wanted: str, found: str) -> InvalidArgument:
    message = f"a digest is wrong: {wanted} was requested, and {found} came: the registry or a proxy changed the image"
    return InvalidArgument(message, {"digest": wanted, "found": found})
