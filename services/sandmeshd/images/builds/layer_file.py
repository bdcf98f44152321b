"""The layer that a step makes: compressed and counted on its way to a file."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import IO, Final

from sandmesh.errors import TooLarge
from sandmeshd.images.extension import NewLayer

_LEVEL: Final = 1
"""Of compression: the least, since builds wait for it."""


class LayerFile:
    """Takes the tar of a layer."""

    def __init__(self, path: Path, most: int) -> None:
        """Write to a file; `most` is the most bytes of the tar."""
        self._path = path
        self._most = most
        self._file: IO[bytes] = path.open("wb")
        self._compressed = gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=self._file, mtime=0)
        self._digest = hashlib.sha256()
        self.count = 0

    def __enter__(self) -> LayerFile:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._close()

    def write(self, data: bytes, /) -> int:
        """Take a part of the tar.

        Raises:
            TooLarge: The layer is larger than images may be.
            OSError: The disk is full.
        """
        self.count += len(data)
        if self.count > self._most:
            raise TooLarge(f"the layer of a step is larger than {self._most} bytes (SANDMESH_IMAGE_BYTES)")
        self._digest.update(data)
        return self._compressed.write(data)

    def finish(self) -> NewLayer | None:
        """Return the layer, None where nothing was written."""
        self._close()
        if not self.count:
            return None
        with self._path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = self._path.stat().st_size
        return NewLayer(self._path, f"sha256:{self._digest.hexdigest()}", f"sha256:{digest}", size)

    def _close(self) -> None:
        try:
            self._compressed.close()
        finally:
            # Where the disk is full, what is still to be written finds it so, too.
            self._file.close()
