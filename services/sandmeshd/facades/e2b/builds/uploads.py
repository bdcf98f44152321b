"""Files of builds, on the way from a client's machine into the sandbox that is built."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import shutil
from collections import Counter
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Final

from sandmeshd.facades.e2b.builds.plan import HASH
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.tenants.shares import Shares

LARGEST: Final = 2 << 30
"""Bytes that the files of one build may have, as they arrive."""


MOST_BYTES: Final = 8 << 30
"""Of the files of all builds; a quarter of it for one owner."""

MOST_FILES: Final = 1_000
"""How many uploads one build has."""


class Uploads:
    """Keeps files in a directory a build; none outlives the door."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = secrets.token_bytes(32)
        self._sizes: dict[str, int] = {}
        self._files: Counter[str] = Counter()
        self._owners: dict[str, str] = {}
        self._shares = Shares("bytes of builds' files", MOST_BYTES)
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

    def expect(self, build_id: str, owner: str) -> None:
        """Accept files of a build, whose bytes count for an owner."""
        self._sizes[build_id], self._owners[build_id] = 0, owner

    def has(self, build_id: str, files_hash: str) -> bool:
        """Return whether files are there."""
        return self.path(build_id, files_hash).is_file()

    def path(self, build_id: str, files_hash: str) -> Path:
        """Return where files are."""
        return self._folder / build_id / f"{files_hash}.tar"

    async def write(self, build_id: str, files_hash: str, chunks: AsyncIterable[bytes]) -> None:
        """Write files.

        Raises:
            ApiError: They are too large, or too many.
            MeshUnavailable: Its owner's builds have all the room that one owner has.
        """
        self._files[build_id] += 1
        if self._files[build_id] > MOST_FILES:
            raise ApiError(413, f"the files of a build come in at most {MOST_FILES} uploads")
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
        size, owner = self._sizes.pop(build_id, 0), self._owners.pop(build_id, "")
        self._files.pop(build_id, None)
        if size:
            self._shares.give(owner, size)
        await asyncio.to_thread(shutil.rmtree, self._folder / build_id, ignore_errors=True)

    def _count(self, build_id: str, size: int) -> None:
        if build_id not in self._sizes:
            raise ApiError(404, "the build of these files has ended: request another")
        if self._sizes[build_id] + size > LARGEST:
            raise ApiError(413, f"the files of a build have at most {LARGEST} bytes")
        self._shares.take(self._owners[build_id], size)
        self._sizes[build_id] += size
