"""`box.fs`: the files of a sandbox, for programs with an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, overload

from sandmesh._calls.call import Order
from sandmesh._calls.short_call import SMALL, read_facts
from sandmesh._client.connection import Connection
from sandmesh._files.calls import FileCalls, check_range, counted
from sandmesh._files.directories import download, upload
from sandmesh._files.sources import known_size, pieces
from sandmesh.errors import InvalidArgument
from sandmesh.files import ByteStream, ChangeStream, FileChange, FileData, FileInfo, FilePath, Progressed, read_info
from sandmesh.results import Listing
from sandmesh.shared.files.atomic_file import open_replacement

Changes: TypeAlias = list[FileChange]

AT_ONCE = 8
"""How many files `write_many` writes concurrently; each large one has its own stream."""


class FilesAsync:
    """The files of a sandbox's workspace and of the directories that its template grants.

    Paths are relative to the workspace, or absolute below it or a granted directory; a path that leaves these, by `..`
    or a link, is a PermissionError. What the sandbox's system refuses is the OSError that `open` would raise.
    """

    def __init__(self, order: Callable[[str, bytes], Order], connect: Callable[[], Connection]) -> None:
        self._calls = FileCalls(order, connect)

    @overload
    async def read(
        self, path: FilePath, fmt: Literal["text"] = "text", *, offset: int = 0, length: int | None = None
    ) -> str: ...
    @overload
    async def read(
        self, path: FilePath, fmt: Literal["bytes"], *, offset: int = 0, length: int | None = None
    ) -> bytes: ...
    @overload
    async def read(
        self, path: FilePath, fmt: Literal["stream"], *, offset: int = 0, length: int | None = None
    ) -> ByteStream: ...
    async def read(
        self, path: FilePath, fmt: str = "text", *, offset: int = 0, length: int | None = None
    ) -> str | bytes | ByteStream:
        """Read a file, or `length` bytes of it from `offset`, as UTF-8 text, as bytes, or as a stream of bytes.

        Raises:
            OSError: It cannot be read.
            UnicodeDecodeError: It is not UTF-8 text; read it as bytes.
        """
        if fmt not in ("text", "bytes", "stream"):
            raise InvalidArgument(f'fmt must be "text", "bytes" or "stream", not {fmt!r}')
        if fmt == "stream":
            return await self._calls.open(path, offset, length)
        data = await self._read(path, offset, length)
        return data.decode() if fmt == "text" else data

    async def _read(self, path: FilePath, offset: int, length: int | None) -> bytes:
        check_range(offset, length)
        small = await self._calls.read_small(path, offset, length) if length != 0 else None
        if small is not None:
            return small
        async with await self._calls.open(path, offset, length) as stream:
            return b"".join([chunk async for chunk in stream])

    async def write(
        self,
        path: FilePath,
        data: FileData,
        *,
        mode: int | None = None,
        make_parents: bool = True,
        replace: bool = True,
    ) -> FileInfo:
        """Write a file atomically: readers see the previous content or all of `data`, never a part.

        `data` is str, bytes, a file object or an iterable of bytes, sync or async. A file that is replaced keeps its
        mode unless `mode` is set.

        Raises:
            OSError: It cannot be written; the previous content stays.
        """
        size = known_size(data)
        optional = {"mode": mode, "size": size}
        arguments: dict[str, Any] = {"path": path, "make_parents": make_parents, "replace": replace}
        arguments |= {name: value for name, value in optional.items() if value is not None}
        if isinstance(data, str | bytes | bytearray | memoryview) and size is not None and size <= SMALL:
            whole = data.encode() if isinstance(data, str) else bytes(data)
            return read_info(await self._calls.put("fs.write", arguments, whole))
        return read_info(await self._calls.send("fs.write", arguments, pieces(data)))

    async def write_many(
        self, files: Mapping[str, FileData] | Mapping[bytes, FileData] | Iterable[tuple[FilePath, FileData]]
    ) -> list[FileInfo]:
        """Write several files, up to AT_ONCE concurrently, each atomically, as `write` does.

        The result has the info of each in the order of the files. The first failure ends it; files written by then
        stay. A path that appears twice has the content of either.
        """
        items = cast("Mapping[FilePath, FileData]", files).items() if isinstance(files, Mapping) else files
        numbered, written = enumerate(items), dict[int, FileInfo]()

        async def write_next() -> None:
            for number, (path, data) in numbered:
                written[number] = await self.write(path, data)

        writers = [asyncio.create_task(write_next()) for _ in range(AT_ONCE)]
        try:
            await asyncio.gather(*writers)
        finally:
            for task in writers:
                task.cancel()
            await asyncio.wait(writers)
        return [written[number] for number in sorted(written)]

    async def list(self, path: FilePath = ".", depth: int = 1, *, attributes: bool = False) -> list[FileInfo]:
        """List a directory's entries by name, down to `depth` levels (1 to 200); links are not followed.

        With `attributes` each has its extended attributes.
        """
        options = {"attributes": True} if attributes else {}
        data = await self._calls.output("fs.list", {"path": path, "depth": depth, **options})
        return Listing(read_info(read_facts(line)) for line in data.splitlines())

    async def exists(self, path: FilePath) -> bool:
        """Return whether a path exists; a dangling link does not."""
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def stat(self, path: FilePath, *, follow: bool = True, attributes: bool = False) -> FileInfo:
        """Return the info of a file, with `attributes` its extended ones too; of a link itself with `follow=False`."""
        options = {"attributes": True} if attributes else {}
        return read_info(await self._calls.ask("fs.stat", {"path": path, "follow": follow, **options}))

    async def remove(self, path: FilePath, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file, a link itself or an empty directory; with `recursive` a directory and all below it."""
        await self._calls.ask("fs.remove", {"path": path, "recursive": recursive, "missing_ok": missing_ok})

    async def move(self, source: FilePath, destination: FilePath, *, replace: bool = False) -> None:
        """Rename a file, directory or link; an existing destination is a FileExistsError unless `replace`."""
        await self._calls.ask("fs.move", {"source": source, "destination": destination, "replace": replace})

    async def mkdir(self, path: FilePath, *, parents: bool = True, mode: int | None = None) -> None:
        """Create a directory and its parents; it may exist. With `parents=False` exactly one new one is created."""
        modes = {} if mode is None else {"mode": mode}
        await self._calls.ask("fs.mkdir", {"path": path, "parents": parents, **modes})

    async def write_from_path(self, local: FilePath, path: FilePath, *, progress: Progressed | None = None) -> FileInfo:
        """Copy a local file into the sandbox, with its permission bits; `progress` is called with (bytes, total)."""
        name = os.fsdecode(local)
        file = await asyncio.to_thread(Path(name).open, "rb")
        with file:
            found = os.fstat(file.fileno())
            arguments = {"path": path, "size": found.st_size, "mode": found.st_mode & 0o777}
            source = counted(pieces(file), progress, found.st_size)
            return read_info(await self._calls.send("fs.write", arguments, source))

    async def download_to(self, path: FilePath, local: FilePath, *, progress: Progressed | None = None) -> FileInfo:
        """Copy a file of the sandbox to a local path atomically, with its permission bits.

        Raises:
            OSError: It cannot be read, or cannot be written here.
        """
        stream = await self._calls.open(path, 0, None)
        async with stream:
            with open_replacement(os.fsdecode(local), stream.info.mode & 0o777) as file:
                async for chunk in counted(stream, progress, stream.info.size):
                    file.write(chunk)
        return stream.info

    async def upload_dir(
        self,
        local: FilePath,
        path: FilePath = ".",
        *,
        exclude: Sequence[str] = (),
        progress: Progressed | None = None,
    ) -> None:
        """Copy a local directory tree into the sandbox; modes, times and links are preserved.

        A new directory is created atomically; into an existing one the entries are moved once all have arrived. Links
        are copied as they are, wherever they point, and never followed. Sockets, FIFOs and devices are skipped, and so
        is what `exclude` matches: patterns as in a `.gitignore` in the directory, such as [".venv/", "*.log"].

        Raises:
            OSError: It cannot be read or written; nothing is kept.
            InvalidArgument: A pattern cannot be read.
        """
        await upload(self._calls, os.fsdecode(local), path, progress, exclude)

    async def download_dir(
        self, path: FilePath, local: FilePath, *, exclude: Sequence[str] = (), progress: Progressed | None = None
    ) -> None:
        """Copy a directory tree of the sandbox to a local path, the reverse of `upload_dir`.

        A link may point anywhere on this machine: programs that follow links should not be run on what they do not
        trust. Set-id bits are dropped.

        Raises:
            OSError: It cannot be read or written; nothing is kept.
            InvalidArgument: A pattern cannot be read.
        """
        await download(self._calls, path, os.fsdecode(local), progress, exclude)

    async def watch(self, path: FilePath = ".", *, recursive: bool = False) -> ChangeStream:
        """Watch a file, or a directory's entries and with `recursive` its whole tree, for changes from now on.

        Raises:
            OSError: It does not exist.
        """
        batches = self._changes({"path": path, "recursive": recursive})
        await anext(batches)  # empty: the watch is established
        return ChangeStream(batches)

    async def _changes(self, arguments: Mapping[str, Any]) -> AsyncGenerator[Changes]:
        async with aclosing(self._calls.follow("fs.watch", arguments)) as batches:
            async for batch in batches:
                yield [FileChange(change["kind"], change["path"], change["directory"]) for change in batch]
