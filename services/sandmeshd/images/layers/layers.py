"""The unpacked layers of all images: a directory each, complete or not there."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument
from sandmeshd.images.file_locks import locked
from sandmeshd.images.layers.unpack import LayerLimits, Unpacked, unpack_layer
from sandmeshd.runtime.user_namespaces.removal import remove_tree

_DIGITS: Final = 24
"""Of a layer's digest in its directory's name: 127 of them fit into the options of one mount, which are a page."""
_libc = ctypes.CDLL(None, use_errno=True)
_NEW: Final = ".new-"
_GONE: Final = ".gone-"


@dataclass(frozen=True)
class Layer:
    """An unpacked layer: the directory that overlayfs takes, and what is in it."""

    directory: Path
    content: Unpacked


class Layers:
    """The layers below a directory, by the digests of their tars."""

    def __init__(self, directory: Path, locks: Path) -> None:
        self.directory = directory
        self._locks = locks

    def find(self, diff_id: str) -> Layer | None:
        """Return a layer, None if it is not here."""
        path = self._path(diff_id)
        try:
            content = Unpacked(**json.loads((path / "layer.json").read_text()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if content.diff_id != diff_id:
            raise InvalidArgument(f"{diff_id} begins as {content.diff_id} does, which is here: remove that one first")
        return Layer(path / "fs", content)

    async def unpack(self, blob: Path, diff_id: str, limits: LayerLimits, progress: Callable[[int], None]) -> Layer:
        """Unpack a layer unless it is here; one process does it, the others wait.

        Raises:
            InvalidArgument: It is damaged or hostile, or has another digest.
            TooLarge: It is larger than the limits.
            RuntimeUnavailable: The disk is full, or this user has no subordinate ids.
        """
        async with locked(self._locks / f"layer-{self._path(diff_id).name}"):
            if (layer := self.find(diff_id)) is not None:
                return layer
            await self._remove_abandoned(diff_id)
            fresh = self.directory / f"{_NEW}{self._path(diff_id).name}"
            try:
                (fresh / "fs").mkdir(parents=True)
                content = await unpack_layer(blob, fresh / "fs", limits, progress)
                if content.diff_id != diff_id:
                    raise InvalidArgument(
                        f"a layer is not what the configuration says: {content.diff_id}, not {diff_id}"
                    )
                (fresh / "layer.json").write_text(json.dumps(asdict(content)))
                await asyncio.to_thread(_write_back, fresh)
                fresh.rename(self._path(diff_id))
            finally:
                await asyncio.shield(asyncio.to_thread(remove_tree, fresh))
            return Layer(self._path(diff_id) / "fs", content)

    async def _remove_abandoned(self, diff_id: str) -> None:
        """Remove what a killed process had begun to unpack."""
        await asyncio.to_thread(remove_tree, self.directory / f"{_NEW}{self._path(diff_id).name}")

    def remove(self, name: str) -> None:
        """Remove a layer, or what a kill has left of one, by its directory's name, while no pull runs."""
        gone = self.directory / f"{_GONE}{secrets.token_hex(8)}"
        (self.directory / name).rename(gone)
        remove_tree(gone)

    def name(self, diff_id: str) -> str:
        """Return the name of a layer's directory."""
        return diff_id.removeprefix("sha256:")[:_DIGITS]

    def _path(self, diff_id: str) -> Path:
        return self.directory / self.name(diff_id)


def _write_back(directory: Path) -> None:
    """Write to disk what is in a directory, with all that its file system has: a hundred thousand files at one time."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(directory))
    finally:
        os.close(descriptor)
