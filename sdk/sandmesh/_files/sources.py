"""Sources of a file's content, as pieces to send."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from sandmesh.errors import InvalidArgument
from sandmesh.files import FileData

PIECE = 256 * 1024


def known_size(data: FileData) -> int | None:
    """Return the size of the content in bytes, None if it is not known beforehand."""
    if isinstance(data, str):
        return len(data.encode())
    if isinstance(data, bytes | bytearray | memoryview):
        return memoryview(data).nbytes
    with suppress(AttributeError, OSError, ValueError):
        file = cast("Any", data)
        remaining: int = os.fstat(file.fileno()).st_size - file.tell()
        return remaining if remaining > 0 else None
    return None


async def pieces(data: FileData) -> AsyncIterator[bytes]:
    """Yield the content in pieces of PIECE bytes; blocking sources are read in a thread.

    Raises:
        InvalidArgument: The source is of an unsupported type.
    """
    if isinstance(data, str | bytes | bytearray | memoryview):
        view = memoryview(data.encode() if isinstance(data, str) else data).cast("B")
        for at in range(0, len(view), PIECE):
            yield bytes(view[at : at + PIECE])
        return
    async for piece in _resized(_chunks(data)):
        yield piece


def _chunks(data: Any) -> AsyncIterator[bytes]:
    read = getattr(data, "read", None)
    if read is not None:
        return _read(read)
    if isinstance(data, AsyncIterable):
        return aiter(cast("AsyncIterable[bytes]", data))
    if isinstance(data, Iterable):
        return _iterate(cast("Iterable[bytes]", data))
    kind = type(data).__name__
    raise InvalidArgument(f"a file's content must be str, bytes, a file object or an iterable of bytes, not {kind}")


async def _read(read: Callable[[int], Any]) -> AsyncIterator[bytes]:
    awaited = inspect.iscoroutinefunction(read)
    while data := await (read(PIECE) if awaited else asyncio.to_thread(read, PIECE)):
        yield data.encode() if isinstance(data, str) else data


async def _iterate(items: Iterable[bytes]) -> AsyncIterator[bytes]:
    iterator = iter(items)
    end = object()
    while (item := await asyncio.to_thread(next, iterator, end)) is not end:
        yield cast("bytes", item)


async def _resized(items: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split large chunks and join small ones."""
    rest = bytearray()
    async for item in items:
        if not isinstance(item, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
            raise InvalidArgument(f"an iterable of a file's content must yield bytes, not {type(item).__name__}")
        view = memoryview(item).cast("B")
        at = min(len(view), PIECE - len(rest)) if rest else 0
        rest += view[:at]
        if len(rest) == PIECE:
            yield bytes(rest)
            rest.clear()
        while not rest and len(view) - at >= PIECE:
            yield bytes(view[at : at + PIECE])
            at += PIECE
        rest += view[at:]
    if rest:
        yield bytes(rest)
