"""The files in a sandbox's workspace that hold the whole of what a model was sent a part of."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from sandmesh.errors import SandmeshError
from sandmesh.replies import read_reply_characters, shorten_result
from sandmesh.results import ToolResult

if TYPE_CHECKING:
    from sandmesh._files.api import FilesAsync

DIRECTORY: Final = "/workspace/.replies"
"""Where they are; Git ignores the directory."""
KEPT_FILES: Final = 40
KEPT_BYTES: Final = 64 << 20
"""The most that is kept for one user of a box; older files are removed for newer ones."""


class ReplyBox(Protocol):
    """The part of an async sandbox that its replies need."""

    @property
    def fs(self) -> FilesAsync:
        """Its files."""
        ...

    @property
    def reply_characters(self) -> int:
        """The most characters of text that a model is sent for one call."""
        ...


class ReplyFiles:
    """Bounds what a model is sent of a box's results, and keeps the whole in its workspace."""

    def __init__(self, box: ReplyBox) -> None:
        self._box = box
        self._kept: OrderedDict[str, int] = OrderedDict()

    async def shorten(self, result: ToolResult, characters: int | None = None) -> ToolResult:
        """Return a result as a model is sent it; the note of what was left out names the file with the whole.

        `characters` is the bound of its text, None for the box's. Where no file can be written the note names none.

        Raises:
            InvalidArgument: The bound is not a whole number above 0.
        """
        bound = self._box.reply_characters if characters is None else read_reply_characters(characters)
        reply = shorten_result(result, bound, f"{DIRECTORY}/{secrets.token_hex(4)}")
        if not reply.files:
            return reply.result
        try:
            await self._write(reply.files)
        except (OSError, SandmeshError):
            return shorten_result(result, bound).result
        return reply.result

    async def _write(self, files: Mapping[str, str | bytes]) -> None:
        fs = self._box.fs
        if not self._kept:
            await fs.write(f"{DIRECTORY}/.gitignore", "*\n")
        for path, content in files.items():
            data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
            await fs.write(path, data)
            self._kept[path] = len(data)
        while len(self._kept) > 1 and (len(self._kept) > KEPT_FILES or sum(self._kept.values()) > KEPT_BYTES):
            path, _ = self._kept.popitem(last=False)
            with suppress(OSError, SandmeshError):
                await fs.remove(path, missing_ok=True)
