"""What `box.fs` gives: entries of directories, changes of them, and bytes that come as they are read.

Names of files are bytes. Here they are strings in which a byte that is not UTF-8 is a lone surrogate, as everywhere in
Python (`os.fsdecode`); `bytes` and `os.PathLike` are taken too.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

FilePath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

FileType = Literal["file", "directory", "symlink", "fifo", "socket", "device", "other"]


class AsyncReadable(Protocol):
    """A file object whose `read` is awaited."""

    async def read(self, size: int, /) -> bytes:
        """Give at most so many bytes; none is the end."""
        ...


FileData: TypeAlias = (
    "str | bytes | bytearray | memoryview | BinaryIO | AsyncReadable | Iterable[bytes] | AsyncIterable[bytes]"
)

Progressed: TypeAlias = Callable[[int, int], None]
"""Hears how many bytes were carried, and of how many; 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """An entry: its path as it was asked for or below the directory that was listed.

    `size` is in bytes, `mode` the permission bits, `links` how many names it has, `target` what a link holds.
    """

    path: str
    type: FileType
    size: int
    mode: int
    mtime_ns: int
    links: int = 1
    target: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def modified(self) -> datetime:
        """When its content was last changed."""
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

    A name that is moved within what is watched is `moved_out` and then `moved_in`. After `overflow` some changes were
    missed: look again. `gone` is the last: the watched path is not there any more.
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
        """Wait for changes and give those there are; an empty list is the end."""
        ready, self._ready = self._ready[::-1], []
        nothing: list[FileChange] = []
        return ready or await anext(self._batches, nothing)

    async def aclose(self) -> None:
        """End the watch."""
        await self._batches.aclose()

    async def __aenter__(self) -> ChangeStream:
        """Give itself."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End the watch."""
        await self.aclose()


def read_info(told: dict[str, Any]) -> FileInfo:
    """Read what the sandbox says of an entry; what a newer one says beside is left."""
    known = {name: told[name] for name in FileInfo.__dataclass_fields__ if name in told}
    return FileInfo(**known)


class ByteStream(AsyncIterator[bytes]):
    """The bytes of a file as they come; `info` is what the file was when it was opened.

    Who iterates slowly slows the transfer. Leaving early, `aclose()` or the end of an `async with` block ends it.
    """

    def __init__(self, info: FileInfo, chunks: AsyncGenerator[bytes]) -> None:
        self.info = info
        self._chunks = chunks

    async def __anext__(self) -> bytes:
        """Wait for the next bytes.

        Raises:
            OSError: The file cannot be read on.
        """
        return await anext(self._chunks)

    async def take(self) -> list[bytes]:
        """Wait for bytes; an empty list is the end."""
        chunk = await anext(self._chunks, None)
        return [] if chunk is None else [chunk]

    async def aclose(self) -> None:
        """End the transfer."""
        await self._chunks.aclose()

    async def __aenter__(self) -> ByteStream:
        """Give itself."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End the transfer."""
        await self.aclose()
