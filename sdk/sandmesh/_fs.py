"""`box.fs`: the files of a sandbox, for programs with an event loop."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, cast, overload

from sandmesh._calls import Order
from sandmesh._landing import landed
from sandmesh._mesh import Connection
from sandmesh._refusals import check_result, is_interrupted
from sandmesh._running import EventStream, run_call
from sandmesh._sources import known_size, pieces
from sandmesh._transfer import open_transfer
from sandmesh.errors import InvalidArgument
from sandmesh.events import Output, Result, read_result
from sandmesh.files import ByteStream, FileData, FileInfo, FilePath, Progressed, read_info

# How often a download that got nothing further is begun again.
ATTEMPTS = 3


class FilesAsync:
    """The files of a sandbox's workspace and of what its template grants beside.

    Paths are relative to the workspace, or absolute below it or a granted directory; what leads out, by `..` or a link,
    is a PermissionError. What the sandbox's system refuses is the OSError that `open` would raise.
    """

    def __init__(self, order: Callable[[str, bytes], Order], connection: Callable[[], Connection]) -> None:
        self._make_order = order
        self._connection = connection

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
        """Read a file, or `length` bytes of it from `offset`: as UTF-8 text, as bytes, or as a stream of bytes.

        Raises:
            OSError: It cannot be read.
            UnicodeDecodeError: It is no UTF-8 text; read it as bytes.
        """
        if fmt not in ("text", "bytes", "stream"):
            raise InvalidArgument(f'fmt is "text", "bytes" or "stream", not {fmt!r}')
        stream = await self._open(path, offset, length)
        if fmt == "stream":
            return stream
        async with stream:
            data = b"".join([chunk async for chunk in stream])
        return data.decode() if fmt == "text" else data

    async def write(
        self,
        path: FilePath,
        data: FileData,
        *,
        mode: int | None = None,
        make_parents: bool = True,
        replace: bool = True,
    ) -> FileInfo:
        """Write a file whole: whoever reads it sees what was there before or all of `data`, never a part.

        `data` is str, bytes, a file object or an iterable of bytes, sync or async. The mode of a file that is replaced
        stays unless one is given.

        Raises:
            OSError: It cannot be written; what was there stays.
        """
        size = known_size(data)
        stated = {"mode": mode, "size": size}
        arguments: dict[str, Any] = {"path": path, "make_parents": make_parents, "replace": replace}
        arguments |= {name: value for name, value in stated.items() if value is not None}
        return read_info(await self._send("fs.write", arguments, pieces(data)))

    async def write_many(
        self, files: Mapping[str, FileData] | Mapping[bytes, FileData] | Iterable[tuple[FilePath, FileData]]
    ) -> list[FileInfo]:
        """Write several files, each as `write` does, in their order; the first that cannot be ends it."""
        items = cast("Mapping[FilePath, FileData]", files).items() if isinstance(files, Mapping) else files
        return [await self.write(path, data) for path, data in items]

    async def list(self, path: FilePath = ".", depth: int = 1) -> list[FileInfo]:
        """List what is below a directory by name, down to `depth` levels (1 to 200); links are not followed."""
        data = await self._output("fs.list", {"path": path, "depth": depth})
        return [read_info(json.loads(line)) for line in data.splitlines()]

    async def exists(self, path: FilePath) -> bool:
        """Say whether something is there; a link to nothing is not."""
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def stat(self, path: FilePath, *, follow: bool = True) -> FileInfo:
        """Give what the system knows of a file; of a link itself with `follow=False`."""
        return read_info(await self._ask("fs.stat", {"path": path, "follow": follow}))

    async def remove(self, path: FilePath, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file, a link itself or an empty directory; with `recursive` a directory and all below it."""
        await self._ask("fs.remove", {"path": path, "recursive": recursive, "missing_ok": missing_ok})

    async def move(self, source: FilePath, destination: FilePath, *, replace: bool = False) -> None:
        """Rename a file, directory or link; an existing destination is a FileExistsError unless `replace`."""
        await self._ask("fs.move", {"source": source, "destination": destination, "replace": replace})

    async def mkdir(self, path: FilePath, *, parents: bool = True, mode: int | None = None) -> None:
        """Make a directory with those above it; one that exists is fine. `parents=False` makes one new directory."""
        stated = {} if mode is None else {"mode": mode}
        await self._ask("fs.mkdir", {"path": path, "parents": parents, **stated})

    async def write_from_path(self, local: FilePath, path: FilePath, *, progress: Progressed | None = None) -> FileInfo:
        """Copy a file of this machine into the sandbox, with its permission bits; `progress` hears (bytes, of all)."""
        name = os.fsdecode(local)
        file = await asyncio.to_thread(Path(name).open, "rb")
        with file:
            found = os.fstat(file.fileno())
            arguments = {"path": path, "size": found.st_size, "mode": found.st_mode & 0o777}
            source = counted(pieces(file), progress, found.st_size)
            return read_info(await self._send("fs.write", arguments, source))

    async def download_to(self, path: FilePath, local: FilePath, *, progress: Progressed | None = None) -> FileInfo:
        """Copy a file of the sandbox to this machine, with its permission bits: there whole or not at all.

        Raises:
            OSError: It cannot be read, or not be written here.
        """
        stream = await self._open(path, 0, None)
        async with stream:
            with landed(os.fsdecode(local), stream.info.mode & 0o777) as file:
                async for chunk in counted(stream, progress, stream.info.size):
                    file.write(chunk)
        return stream.info

    async def _open(self, path: FilePath, offset: int, length: int | None) -> ByteStream:
        if offset < 0 or (length is not None and length < 0):
            raise InvalidArgument("offset and length are 0 or more")
        told: dict[str, Any] = {}
        chunks = self._resumed(path, offset, length, told)
        try:
            await anext(chunks)  # what is known of the file comes first
        except BaseException:
            await chunks.aclose()
            raise
        return ByteStream(read_info(told), chunks)

    async def _resumed(
        self, path: FilePath, offset: int, length: int | None, told: dict[str, Any]
    ) -> AsyncGenerator[bytes]:
        """Give a file's bytes, after an interruption from where they ended; first an empty chunk, once it is open."""
        at, attempts = offset, 0
        while True:
            arguments = {"path": path, "offset": at, "version": told.get("version", "")}
            if length is not None:
                arguments["length"] = length - (at - offset)
            before = at
            async with open_transfer(self._connection(), self._order("fs.read", arguments)) as transfer:
                async with aclosing(transfer.chunks()) as chunks:
                    async for chunk in chunks:
                        if not told:
                            told.update(transfer.facts)
                            yield b""
                        at += len(chunk)
                        yield chunk
                result = read_result(transfer.finished())
            attempts = 0 if at > before else attempts + 1
            if is_interrupted(result) and told and attempts < ATTEMPTS:
                continue
            check_result(result)
            if not told:
                told.update(transfer.facts)
                yield b""
            return

    async def _send(self, tool: str, arguments: Mapping[str, Any], source: AsyncIterator[bytes]) -> dict[str, Any]:
        async with open_transfer(self._connection(), self._order(tool, arguments), source) as transfer:
            async for _ in transfer.chunks():
                pass
            transfer.check_input()
            return check_result(read_result(transfer.finished()))

    async def _ask(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = await run_call(self._connection().mux, self._order(tool, arguments))
        meta = found["meta"]
        return check_result(Result(meta["reason"], found.is_error, None, None, meta["message"], found.structured))

    async def _output(self, tool: str, arguments: Mapping[str, Any]) -> bytes:
        data = bytearray()
        async with EventStream(lambda: self._connection().mux, self._order(tool, arguments)) as events:
            async for event in events:
                if isinstance(event, Output):
                    data += event.data
                elif isinstance(event, Result):
                    check_result(event)
        return bytes(data)

    def _order(self, tool: str, arguments: Mapping[str, Any]) -> Order:
        plain = {name: _plain(value) for name, value in arguments.items()}
        # Bytes of names that are not UTF-8 travel as \udcXX, which only the ASCII form of JSON can hold.
        return self._make_order(tool, json.dumps(plain).encode())


def _plain(value: Any) -> Any:
    return os.fsdecode(cast("FilePath", value)) if isinstance(value, bytes | os.PathLike) else value


async def counted(chunks: AsyncIterator[bytes], progress: Progressed | None, total: int) -> AsyncIterator[bytes]:
    """Give chunks on, and tell how many bytes that makes."""
    done = 0
    async for chunk in chunks:
        yield chunk
        done += len(chunk)
        if progress is not None:
            progress(done, total)
