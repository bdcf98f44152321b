"""Results of `box.fs`: directory entries, changes, and streams of bytes.

Names of files are bytes. Here they are strings in which a byte that is not UTF-8 is a lone surrogate, as everywhere in
Python (`os.fsdecode`); `bytes` and `os.PathLike` are accepted too.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

FilePath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

FileType = Literal["file", "directory", "symlink", "fifo", "socket", "device", "other"]


class AsyncReadable(Protocol):
    """A file object with an async `read`."""

    async def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; an empty result is the end."""
        ...


FileData: TypeAlias = (
    "str | bytes | bytearray | memoryview | BinaryIO | AsyncReadable | Iterable[bytes] | AsyncIterable[bytes]"
)

Progressed: TypeAlias = Callable[[int, int], None]
"""Called with the bytes transferred so far and the total, which is 0 if unknown."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A directory entry: its path as requested, or relative to the listed directory.

    `size` is in bytes, `mode` the permission bits, `links` the number of hard links, `target` that of a symbolic link.
    `attributes` are the extended attributes of the namespace `user.`, without it, where they were asked for: at most
    8 KiB a file.
    """

    path: str
    type: FileType
    size: int
    mode: int
    mtime_ns: int
    links: int = 1
    target: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def modified(self) -> datetime:
        """The time of the last change of its content."""
        return datetime.fromtimestamp(self.mtime_ns / 1e9, UTC)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.type == "file"

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.type == "directory"


ChangeKind = Literal["created", "modified", "attributes", "deleted", "moved_in", "moved_out", "overflow", "gone"]


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change below a watched path; `path` is relative to it, empty for the watched path itself.

    A move within the watched tree is a `moved_out` and then a `moved_in`. After `overflow` some changes were missed:
    list again. `gone` is the last: the watched path no longer exists.
    """

    kind: ChangeKind
    path: str
    directory: bool


class ChangeStream(AsyncIterator[FileChange]):
    """Changes as they happen. Leaving early, `aclose()` or the end of an `async with` block ends the watch."""

    def __init__(self, batches: AsyncGenerator[list[FileChange]]) -> None:
        self._batches = batches
        self._ready: list[FileChange] = []

    async def __anext__(self) -> FileChange:
        """Wait for the next change."""
        if not self._ready:
            self._ready = (await anext(self._batches))[::-1]
        return self._ready.pop()

    async def take(self) -> list[FileChange]:
        """Wait for changes and return all that have arrived; an empty list is the end."""
        ready, self._ready = self._ready[::-1], []
        nothing: list[FileChange] = []
        return ready or await anext(self._batches, nothing)

    async def aclose(self) -> None:
        """End the watch."""
        await self._batches.aclose()

    async def __aenter__(self) -> ChangeStream:
        """Return the stream itself."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End the watch."""
        await self.aclose()


def read_info(facts: dict[str, Any]) -> FileInfo:
    """Convert a sandbox's facts of an entry; fields that only newer sandboxes have are ignored."""
    known = {name: facts[name] for name in FileInfo.__dataclass_fields__ if name in facts}
    return FileInfo(**known)


class ByteStream(AsyncIterator[bytes]):
    """The bytes of a file as they arrive; `info` is the file's info when it was opened.

    A slow reader slows the transfer. Leaving early, `aclose()` or the end of an `async with` block ends it.
    """

    def __init__(self, info: FileInfo, chunks: AsyncGenerator[bytes]) -> None:
        self.info = info
        self._chunks = chunks

    async def __anext__(self) -> bytes:
        """Wait for the next bytes.

        Raises:
            OSError: The file cannot be read any further.
        """
        return await anext(self._chunks)

    async def take(self) -> list[bytes]:
        """Wait for bytes and return them; an empty list is the end."""
        chunk = await anext(self._chunks, None)
        return [] if chunk is None else [chunk]

    async def aclose(self) -> None:
        """End the transfer."""
        await self._chunks.aclose()

    async def __aenter__(self) -> ByteStream:
        """Return the stream itself."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End the transfer."""
        await self.aclose()
