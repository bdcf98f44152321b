"""Directory transfer between this machine and a sandbox, as tar streams."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import IO

from sandmesh._files.calls import FileCalls, counted
from sandmesh._files.sources import pieces
from sandmesh.files import FilePath, Progressed
from sandmesh.shared.files.atomic_directory import fill_atomically
from sandmesh.shared.files.ignore_patterns import IgnorePatterns
from sandmesh.shared.files.tar import pack, unpack

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


async def upload(
    calls: FileCalls, local: str, path: FilePath, progress: Progressed | None, exclude: Sequence[str] = ()
) -> None:
    """Copy a local directory into a sandbox, without what the patterns match."""
    patterns = IgnorePatterns(exclude)
    os.close(os.open(local, _DIRECTORY))  # what is not a directory is refused before a call starts
    stream = tar_stream(local, exclude=patterns)
    await calls.send("fs.unpack", {"path": path, "any_links": True}, counted(pieces(stream), progress, 0))


def tar_stream(local: str, *, any_modes: bool = False, exclude: IgnorePatterns | None = None) -> Iterator[bytes]:
    """Yield a directory as a tar stream; with `any_modes` including what its owner may not read."""
    # A thread may still run this when the transfer has ended: it needs its own descriptor.
    fd = os.open(local, _DIRECTORY)
    try:
        yield from pack(fd, any_modes=any_modes, exclude=exclude)
    finally:
        os.close(fd)


async def download(
    calls: FileCalls, path: FilePath, local: str, progress: Progressed | None, exclude: Sequence[str] = ()
) -> None:
    """Copy a directory of a sandbox to a local path, without what the patterns match."""
    IgnorePatterns(exclude)  # what is not a pattern is refused before a call starts
    arguments = {
        "path": path,
        **({"exclude": exclude if isinstance(exclude, str) else "\n".join(exclude)} if exclude else {}),
    }
    async with aclosing(calls.receive("fs.pack", arguments)) as received:
        # The writer of the sandbox's files may not grant an identity here.
        await DirectoryReceiver(local, any_links=True, set_ids=False).receive(counted(received, progress, 0))


class DirectoryReceiver:
    """Unpacks a tar stream into a directory, in a thread that reads the stream from a pipe.

    With `any_links` symbolic links may point anywhere; none is ever followed. `set_ids` is as for `unpack`.
    """

    def __init__(self, local: str, *, any_links: bool = False, set_ids: bool | None = None) -> None:
        self._target = Path(local).absolute()
        self._any_links = any_links
        self._set_ids = set_ids
        self._whole = False

    async def receive(self, chunks: AsyncIterator[bytes]) -> None:
        """Create the directory from the chunks of a tar stream.

        Raises:
            OSError: A member of the stream leads outside, or the system refuses it; nothing is kept.
        """
        reader, writer = os.pipe()
        unpacked = asyncio.create_task(asyncio.to_thread(self._unpack, reader))
        try:
            await self._feed(chunks, writer)
        except ConnectionError:
            # The thread has stopped reading, and has the reason.
            await asyncio.shield(unpacked)
        except BaseException:
            await asyncio.wait([unpacked])
            # What the thread ended with follows from what is raised here.
            unpacked.exception()
            raise
        await asyncio.shield(unpacked)

    async def _feed(self, chunks: AsyncIterator[bytes], writer: int) -> None:
        loop = asyncio.get_running_loop()
        pipe_end = os.fdopen(writer, "wb", buffering=0)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe_end)
        pipe = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            async for chunk in chunks:
                pipe.write(chunk)
                await pipe.drain()
            self._whole = True
        finally:
            pipe.close()

    def _unpack(self, reader: int) -> None:
        with os.fdopen(reader, "rb") as source:
            parent = os.open(self._target.parent, _DIRECTORY)
            try:
                fill_atomically(parent, self._target.name or ".", lambda fd: self._fill(source, fd))
            finally:
                os.close(parent)

    def _fill(self, source: IO[bytes], fd: int) -> None:
        unpack(source, fd, any_links=self._any_links, set_ids=self._set_ids)
        if not self._whole:
            raise OSError(errno.ECANCELED, "the transfer was interrupted; nothing of it is kept", str(self._target))
