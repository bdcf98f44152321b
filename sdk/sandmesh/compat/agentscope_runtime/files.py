"""`box.fs` with the old names, arguments and results."""

from __future__ import annotations

import asyncio
import io
import posixpath
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

from sandmesh._client.sync import Facade, blocking
from sandmesh.errors import InvalidArgument

WORKSPACE: Final = "/workspace"
MIB: Final = 1024 * 1024
DEEPEST: Final = 200
"""The most levels that a sandbox lists in one call."""

Data: TypeAlias = str | bytes | bytearray | BinaryIO

Entry = dict[str, Any]
"""An entry: its absolute path, name, type ("file", "dir", "symlink", "other"), size (files only) and mtime_ms."""


class _Info(Protocol):
    """What an entry is made of."""

    @property
    def type(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def mtime_ns(self) -> int: ...


class SandboxFSAsync:
    """The files of a sandbox's workspace for programs with an event loop.

    The methods that end with `_async` have the old arguments and results; every other name is that of `FilesAsync`.
    What fails is an OSError, where it was an HTTP error. `content_type` is accepted and has no effect.
    """

    def __init__(self, files: Any, sandbox_id: Callable[[], str]) -> None:
        """Wrap the FilesAsync of the box with this id."""
        self._files = files
        self._sandbox_id = sandbox_id

    def __getattr__(self, name: str) -> Any:
        """Return what only `FilesAsync` has."""
        return getattr(self._files, name)

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id."""
        return self._sandbox_id()

    async def read_async(self, path: str, fmt: str = "text") -> str | bytes | AsyncIterator[bytes]:
        """Read a file as "text" with its line ends as `\\n`, as "bytes", or as a "stream" of bytes.

        Raises:
            OSError: It cannot be read.
        """
        return await self._files.read(path, "stream") if fmt == "stream" else await self.read_whole(path, fmt)

    async def read_whole(self, path: str, fmt: str) -> str | bytes:
        """Read a file as "text" or "bytes"."""
        if fmt == "bytes":
            return bytes(await self._files.read(path, "bytes"))
        if fmt != "text":
            raise InvalidArgument(f'fmt must be "text", "bytes" or "stream", not {fmt!r}', {"argument": "fmt"})
        return _text(await self._files.read(path))

    async def write_async(self, path: str, data: Data, *, content_type: str = "application/octet-stream") -> Entry:
        """Write a file, its parents included, over one that exists; return its entry."""
        del content_type
        return _entry(path, await self._files.write(path, data))

    async def write_many_async(self, files: Sequence[Mapping[str, Any]]) -> list[Entry]:
        """Write `{"path": ..., "data": ...}` each, and return their entries in this order."""
        paths = [str(each["path"]) for each in files]
        contents = [_bytes(each["data"]) for each in files]
        written = await self._files.write_many(list(zip(paths, contents, strict=True)))
        return [_entry(path, info) for path, info in zip(paths, written, strict=True)]

    async def list_async(self, path: str, depth: int | None = 1) -> list[Entry]:
        """List the entries below a directory, down to `depth` levels (None: 1); dangling links are left out."""
        entries: list[Entry] = []
        for info in await self._files.list(path, min(1 if depth is None else depth, DEEPEST)):
            inner = posixpath.join(path, info.path)
            if info.type != "symlink":
                entries.append(_entry(inner, info))
            elif await self._files.exists(inner):
                entries.append(_entry(inner, info, await self._files.stat(inner)))
        return entries

    async def exists_async(self, path: str) -> bool:
        """Return whether a path exists; a dangling link does not."""
        return bool(await self._files.exists(path))

    async def remove_async(self, path: str) -> None:
        """Remove a file, a link or a whole directory; what does not exist is ignored."""
        await self._files.remove(path, recursive=True, missing_ok=True)

    async def move_async(self, source: str, destination: str) -> Entry:
        """Rename an entry, over a file that exists, into a directory that is created; return its entry.

        Raises:
            FileNotFoundError: There is no source.
        """
        await self._files.stat(source)
        await self._files.mkdir(posixpath.dirname(_absolute(destination)))
        await self._files.move(source, destination, replace=True)
        own = await self._files.stat(destination, follow=False)
        return _entry(destination, own, await self._files.stat(destination))

    async def mkdir_async(self, path: str) -> bool:
        """Create a directory and its parents; return False where it exists.

        Raises:
            FileExistsError: The path is a file.
        """
        if await self._files.exists(path) and (await self._files.stat(path)).type == "directory":
            return False
        await self._files.mkdir(path)
        return True

    async def write_from_path_async(
        self, workspace_path: str, local_path: str, *, content_type: str = "application/octet-stream"
    ) -> Entry:
        """Copy a local file into the workspace and return its entry."""
        with await asyncio.to_thread(Path(local_path).open, "rb") as file:
            return await self.write_async(workspace_path, file, content_type=content_type)


class SandboxFS(Facade):
    """The files of a sandbox's workspace with the old arguments and results; every other name is that of `Files`."""

    def __init__(self, files: Any, sandbox_id: Callable[[], str]) -> None:
        """Wrap the Files of the box with this id."""
        self.twin: SandboxFSAsync = SandboxFSAsync(files.twin, sandbox_id)
        self._files = files

    def __getattr__(self, name: str) -> Any:
        """Return what only `Files` has."""
        return getattr(self._files, name)

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id."""
        return self.twin.sandbox_id

    def read(self, path: str, fmt: str = "text", *, chunk_size: int = MIB) -> str | bytes | Iterator[bytes]:
        """Read a file as "text", as "bytes", or as a "stream" of pieces of `chunk_size` bytes.

        Raises:
            OSError: It cannot be read.
        """
        if fmt != "stream":
            return self._read_whole(path, fmt)
        if chunk_size < 1:
            raise InvalidArgument(f"chunk_size must be at least 1, not {chunk_size}", {"argument": "chunk_size"})
        return _pieces(lambda: self._files.read(path, "stream"), chunk_size)

    _read_whole = blocking(SandboxFSAsync.read_whole)
    write = blocking(SandboxFSAsync.write_async)
    write_many = blocking(SandboxFSAsync.write_many_async)
    list = blocking(SandboxFSAsync.list_async)
    exists = blocking(SandboxFSAsync.exists_async)
    remove = blocking(SandboxFSAsync.remove_async)
    move = blocking(SandboxFSAsync.move_async)
    mkdir = blocking(SandboxFSAsync.mkdir_async)
    write_from_path = blocking(SandboxFSAsync.write_from_path_async)


def _pieces(open_stream: Callable[[], Any], size: int) -> Iterator[bytes]:
    # Opened by the first `next`: an iterator that is never used holds nothing.
    rest = bytearray()
    with closing(open_stream()) as stream:
        for chunk in stream:
            rest += chunk
            while len(rest) >= size:
                yield bytes(rest[:size])
                del rest[:size]
    if rest:
        yield bytes(rest)


def _text(text: str) -> str:
    # The old server opened files in text mode.
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def _bytes(data: Any) -> Data:
    return data.read().encode() if isinstance(data, io.TextIOBase) else data


def _absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join(WORKSPACE, path))


def _entry(path: str, own: _Info, target: _Info | None = None) -> Entry:
    """Return an entry of `lstat` (`own`) with the type of what a link leads to."""
    absolute = _absolute(path)
    kinds = {"directory": "dir", "file": "file", "symlink": "symlink"}
    kind = kinds.get((target or own).type, "other")
    return {
        "path": absolute,
        "name": posixpath.basename(absolute),
        "type": kind,
        "size": own.size if kind == "file" else None,
        "mtime_ms": own.mtime_ns // 1_000_000,
    }
