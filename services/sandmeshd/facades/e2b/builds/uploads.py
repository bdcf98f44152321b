"""Files of builds, on the way from a client's machine into the sandbox that is built."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import shutil
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Final

from sandmeshd.facades.e2b.builds.plan import HASH
from sandmeshd.facades.e2b.errors import ApiError

LARGEST: Final = 2 << 30
"""Bytes that the files of one build may have, as they arrive."""


class Uploads:
    """Keeps files in a directory a build; none outlives the door."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = secrets.token_bytes(32)
        self._sizes: dict[str, int] = {}
        shutil.rmtree(folder, ignore_errors=True)

    def token(self, build_id: str, files_hash: str) -> str:
        """Return what lets a client put one step's files.

        Raises:
            ApiError: The hash is none.
        """
        if HASH.fullmatch(files_hash) is None:
            raise ApiError(400, "a hash of files has 8 to 128 hexadecimal digits")
        return hmac.new(self._key, f"{build_id}\0{files_hash}".encode(), hashlib.sha256).hexdigest()

    def check(self, build_id: str, files_hash: str, shown: str) -> None:
        """Check what a client shows.

        Raises:
            ApiError: It is wrong, or the build has ended.
        """
        if not hmac.compare_digest(shown.encode(), self.token(build_id, files_hash).encode()):
            raise ApiError(403, "the link for these files is wrong: ask for another")
        if build_id not in self._sizes:
            raise ApiError(404, "the build of these files has ended: request another")

    def expect(self, build_id: str) -> None:
        """Accept files of a build."""
        self._sizes[build_id] = 0

    def has(self, build_id: str, files_hash: str) -> bool:
        """Return whether files are there."""
        return self.path(build_id, files_hash).is_file()

    def path(self, build_id: str, files_hash: str) -> Path:
        """Return where files are."""
        return self._folder / build_id / f"{files_hash}.tar"

    async def write(self, build_id: str, files_hash: str, chunks: AsyncIterable[bytes]) -> None:
        """Write files.

        Raises:
            ApiError: They are too large.
        """
        path = self.path(build_id, files_hash)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_name(f"{files_hash}.{secrets.token_hex(4)}")
        try:
            with partial.open("xb") as file:
                async for chunk in chunks:
                    self._count(build_id, len(chunk))
                    await asyncio.to_thread(file.write, chunk)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    async def remove(self, build_id: str) -> None:
        """Remove the files of a build."""
        self._sizes.pop(build_id, None)
        await asyncio.to_thread(shutil.rmtree, self._folder / build_id, ignore_errors=True)

    def _count(self, build_id: str, size: int) -> None:
        if build_id not in self._sizes:
            raise ApiError(404, "the build of these files has ended: request another")
        self._sizes[build_id] += size
        if self._sizes[build_id] > LARGEST:
            raise ApiError(413, f"the files of a build have at most {LARGEST} bytes")
