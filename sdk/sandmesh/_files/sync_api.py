"""`box.fs` for programs without an event loop: each method wraps the async twin's."""

from __future__ import annotations

from typing import Literal, overload

from sandmesh._client.sync import BlockingIterator, Facade, blocking, run
from sandmesh._files.api import FilesAsync
from sandmesh.files import ByteStream, FileChange, FileInfo, FilePath


class BlockingByteStream(BlockingIterator[bytes]):
    """The bytes of a file as they arrive; `info` is its info when it was opened. Closing it ends the transfer."""

    def __init__(self, stream: ByteStream, twin: str) -> None:
        super().__init__(stream, twin)
        self.info: FileInfo = stream.info


class Files(Facade):
    """The files of a sandbox's workspace and of the directories that its template grants.

    Paths are relative to the workspace, or absolute below it or a granted directory; a path that leaves these, by `..`
    or a link, is a PermissionError. What the sandbox's system refuses is the OSError that `open` would raise.
    """

    def __init__(self, twin: FilesAsync) -> None:
        self.twin: FilesAsync = twin

    @overload
    def read(
        self, path: FilePath, fmt: Literal["text"] = "text", *, offset: int = 0, length: int | None = None
    ) -> str: ...
    @overload
    def read(self, path: FilePath, fmt: Literal["bytes"], *, offset: int = 0, length: int | None = None) -> bytes: ...
    @overload
    def read(
        self, path: FilePath, fmt: Literal["stream"], *, offset: int = 0, length: int | None = None
    ) -> BlockingByteStream: ...
    def read(
        self,
        path: FilePath,
        fmt: Literal["text", "bytes", "stream"] = "text",
        *,
        offset: int = 0,
        length: int | None = None,
    ) -> str | bytes | BlockingByteStream:
        """Read a file, or `length` bytes of it from `offset`, as UTF-8 text, as bytes, or as a stream of bytes.

        Raises:
            OSError: It cannot be read.
            UnicodeDecodeError: It is not UTF-8 text; read it as bytes.
        """
        name = type(self.twin).__name__
        if fmt == "stream":
            return BlockingByteStream(run(name, self.twin.read(path, fmt, offset=offset, length=length)), name)
        if fmt == "bytes":
            return run(name, self.twin.read(path, fmt, offset=offset, length=length))
        return run(name, self.twin.read(path, fmt, offset=offset, length=length))

    def watch(self, path: FilePath = ".", *, recursive: bool = False) -> BlockingIterator[FileChange]:
        """Watch a file, or a directory's entries and with `recursive` its whole tree, for changes from now on.

        Raises:
            OSError: It does not exist.
        """
        name = type(self.twin).__name__
        return BlockingIterator(run(name, self.twin.watch(path, recursive=recursive)), name)

    write = blocking(FilesAsync.write)
    write_many = blocking(FilesAsync.write_many)
    list = blocking(FilesAsync.list)
    exists = blocking(FilesAsync.exists)
    stat = blocking(FilesAsync.stat)
    remove = blocking(FilesAsync.remove)
    move = blocking(FilesAsync.move)
    mkdir = blocking(FilesAsync.mkdir)
    write_from_path = blocking(FilesAsync.write_from_path)
    download_to = blocking(FilesAsync.download_to)
    upload_dir = blocking(FilesAsync.upload_dir)
    download_dir = blocking(FilesAsync.download_dir)
