"""SFTP on a sandbox's files: reads in blocks, and a file that was written is uploaded whole when it is closed."""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import IO, Any, Final, NoReturn, ParamSpec, TypeVar

import asyncssh
from asyncssh.constants import FXF_CREAT, FXF_EXCL, FXF_TRUNC, FXF_WRITE

from sandmesh import Output, SandboxAsync
from sandmesh.errors import SandmeshError
from sandmesh.files import FileInfo

P = ParamSpec("P")
R = TypeVar("R")

BLOCK_BYTES: Final = 8 << 20
MOST_IN_PLACE_BYTES: Final = 4 << 30
"""The largest file that is opened for writing with its present content, which is copied to this machine first."""
_MESSAGE_BYTES: Final = 4096
_WORKSPACE: Final = "/workspace"
_WITHOUT_FILES: Final = frozenset(
    [
        "channel",
        "connection",
        "convert_attrs",
        "env",
        "exit",
        "format_group",
        "format_longname",
        "format_user",
        "logger",
    ]
)
_KINDS: Final = {"file": 0o100000, "directory": 0o040000, "symlink": 0o120000}


def _answered(method: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Answer an error of the mesh as SFTP's failure, with its message."""

    @wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await method(*args, **kwargs)
        except SandmeshError as error:
            raise asyncssh.SFTPFailure(str(error)) from None

    return run


@dataclass
class OpenFile:
    """A file that a client has open: read from the sandbox in blocks, or written to a local file first."""

    path: str
    size: int = 0
    local: IO[bytes] | None = None
    block: bytes = b""
    start: int = -1
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def seek(self, offset: int, whence: int) -> int:
        """Return where data or a hole follows, which asyncssh asks for its clients: all is data up to the end."""
        if offset >= self.size:
            raise OSError(errno.ENXIO, "it ends before", self.path)
        return offset if whence == os.SEEK_DATA else self.size


def _refuse(*_arguments: object) -> NoReturn:
    raise asyncssh.SFTPOpUnsupported("files of a sandbox have no such operation")


class _SandboxSubsystem(asyncssh.SFTPServer):
    """Refuses each operation that asyncssh would do to files of this machine."""

    def exit(self) -> None:
        """End the subsystem with exit code 0, without which scp reports a failure."""
        self.channel.exit(0)  # pyright: ignore[reportUnknownMemberType]  # its own types leave a parameter open


# Also what a later version of asyncssh adds; operations that sandboxes have are `SandboxSftp`'s.
for _name in dir(asyncssh.SFTPServer):
    if not _name.startswith("_") and _name not in _WITHOUT_FILES:
        setattr(_SandboxSubsystem, _name, _refuse)


class SandboxSftp(_SandboxSubsystem):
    """Serves one client with the files of one sandbox; relative paths are below the workspace."""

    def __init__(self, chan: Any, box: SandboxAsync) -> None:
        super().__init__(chan)  # pyright: ignore[reportUnknownMemberType]  # its own types leave a parameter open
        self._box = box

    @_answered
    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        """Open a file; one that is written begins with its present content unless it is truncated."""
        name = _place(path)
        if not pflags & FXF_WRITE:
            return OpenFile(name, (await self._box.fs.stat(name)).size)
        exists = await self._box.fs.exists(name)
        if exists and pflags & FXF_EXCL:
            raise FileExistsError(errno.EEXIST, "it exists", name)
        if not exists and not pflags & FXF_CREAT:
            raise FileNotFoundError(errno.ENOENT, "it does not exist", name)
        local = await asyncio.to_thread(tempfile.TemporaryFile)
        if exists and not pflags & FXF_TRUNC:
            await _copy_content(self._box, name, local)
        elif not exists:
            await self._box.fs.write(name, b"")
        return OpenFile(name, local=local)

    @_answered
    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        """Read bytes of a file."""
        file = _opened(file_obj)
        if file.local is not None:
            return await asyncio.to_thread(os.pread, file.local.fileno(), size, offset)
        async with file.lock:
            found = bytearray()
            # Some clients take a short answer for the end of the file.
            size = min(size, BLOCK_BYTES)
            while len(found) < size and (part := await _part(self._box, file, offset + len(found))):
                found += part[: size - len(found)]
            return bytes(found)

    def write(self, file_obj: object, offset: int, data: bytes) -> int:
        """Write bytes of a file, which arrives in the sandbox when it is closed."""
        file = _opened(file_obj)
        if file.local is None:
            raise asyncssh.SFTPPermissionDenied("it is open for reading")
        return os.pwrite(file.local.fileno(), data, offset)

    @_answered
    async def close(self, file_obj: object) -> None:
        """Close a file; what was written replaces the file in the sandbox, whole."""
        file = _opened(file_obj)
        if file.local is not None:
            with file.local as local:
                await asyncio.to_thread(local.seek, 0)
                await self._box.fs.write(file.path, local)

    @_answered
    async def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        """Return the attributes of a file or link."""
        return _attributes(await self._box.fs.stat(_place(path), follow=False))

    @_answered
    async def stat(self, path: bytes) -> asyncssh.SFTPAttrs:
        """Return the attributes of what a path leads to."""
        return _attributes(await self._box.fs.stat(_place(path)))

    @_answered
    async def fstat(self, file_obj: object) -> asyncssh.SFTPAttrs:
        """Return the attributes of an open file."""
        file = _opened(file_obj)
        found = _attributes(await self._box.fs.stat(file.path))
        if file.local is not None:
            found.size = os.fstat(file.local.fileno()).st_size
        return found

    @_answered
    async def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Set a file's size, permissions and time; the owner cannot change."""
        name = _place(path)
        if attrs.size is not None:
            await _run(self._box, "truncate", "-s", str(attrs.size), name)
        if attrs.permissions is not None:
            await _run(self._box, "chmod", f"{attrs.permissions & 0o777:o}", name)
        if attrs.mtime is not None:
            await _run(self._box, "touch", "-m", "-d", f"@{attrs.mtime}", name)

    async def fsetstat(self, file_obj: object, attrs: asyncssh.SFTPAttrs) -> None:
        """Set what `setstat` does, of an open file; its size where it is written."""
        file = _opened(file_obj)
        if file.local is not None and attrs.size is not None:
            os.ftruncate(file.local.fileno(), attrs.size)
            attrs.size = None
        await self.setstat(os.fsencode(file.path), attrs)

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        """Yield the entries of a directory."""
        try:
            entries = await self._box.fs.list(_place(path))
        except SandmeshError as error:
            raise asyncssh.SFTPFailure(str(error)) from None
        for own in (b".", b".."):
            yield asyncssh.SFTPName(own, attrs=asyncssh.SFTPAttrs(permissions=_KINDS["directory"] | 0o755))
        for entry in entries:
            yield asyncssh.SFTPName(os.fsencode(entry.name), attrs=_attributes(entry))

    @_answered
    async def remove(self, path: bytes) -> None:
        """Remove a file or link."""
        await self._box.fs.remove(_place(path))

    @_answered
    async def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Make a directory."""
        mode = 0o777 if attrs.permissions is None else attrs.permissions & 0o777
        await self._box.fs.mkdir(_place(path), parents=False, mode=mode)

    @_answered
    async def rmdir(self, path: bytes) -> None:
        """Remove an empty directory."""
        await _run(self._box, "rmdir", _place(path))

    async def realpath(self, path: bytes) -> bytes:
        """Return a path as an absolute one; links are not resolved."""
        return os.fsencode(_place(path))

    @_answered
    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Move a file to a path that nothing is at."""
        await self._box.fs.move(_place(oldpath), _place(newpath))

    @_answered
    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Move a file, also over another."""
        await self._box.fs.move(_place(oldpath), _place(newpath), replace=True)

    @_answered
    async def readlink(self, path: bytes) -> bytes:
        """Return the target of a link."""
        return os.fsencode((await self._box.fs.stat(_place(path), follow=False)).target or "")

    @_answered
    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        """Make a link at the second path."""
        await _run(self._box, "ln", "-s", "--", os.fsdecode(oldpath), _place(newpath))


async def _part(box: SandboxAsync, file: OpenFile, offset: int) -> memoryview:
    """Return the bytes from an offset to the end of its block; the block is read where it is not there."""
    if not file.start <= offset < file.start + len(file.block):
        file.block = await box.fs.read(file.path, "bytes", offset=offset, length=BLOCK_BYTES)
        file.start = offset
    return memoryview(file.block)[offset - file.start :]


async def _copy_content(box: SandboxAsync, path: str, local: IO[bytes]) -> None:
    """Copy the present content of a file, which its writer may keep in part."""
    size = (await box.fs.stat(path)).size
    if size > MOST_IN_PLACE_BYTES:
        raise asyncssh.SFTPFailure(
            f"{path} has more than {MOST_IN_PLACE_BYTES >> 30} GiB: remove it, then write it whole"
        )
    async with await box.fs.read(path, "stream", length=size) as chunks:
        async for chunk in chunks:
            await asyncio.to_thread(local.write, chunk)
    await asyncio.to_thread(local.flush)


async def _run(box: SandboxAsync, *command: str) -> None:
    said = b""
    async with await box.processes.start([*command]) as process:
        await process.close_stdin()
        async for event in process:
            said = (said + event.data)[:_MESSAGE_BYTES] if isinstance(event, Output) else said
        done = await process.wait()
    if done.exit_code != 0:
        raise asyncssh.SFTPFailure(said.decode(errors="replace").strip() or f"{command[0]} failed")


def _opened(file_obj: object) -> OpenFile:
    if not isinstance(file_obj, OpenFile):
        raise asyncssh.SFTPInvalidHandle("it is not open")
    return file_obj


def _place(path: bytes) -> str:
    """Return a path as an absolute one, below the workspace where it is relative."""
    return posixpath.normpath(posixpath.join(_WORKSPACE, os.fsdecode(path)))


def _attributes(info: FileInfo) -> asyncssh.SFTPAttrs:
    seconds = info.mtime_ns // 1_000_000_000
    mode = _KINDS.get(info.type, 0) | info.mode
    return asyncssh.SFTPAttrs(size=info.size, permissions=mode, atime=seconds, mtime=seconds, nlink=info.links)
