"""What users give as a file's content, as pieces to send."""

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
    """Give how many bytes will come, where that is known before."""
    if isinstance(data, str):
        return len(data.encode())
    if isinstance(data, bytes | bytearray | memoryview):
        return memoryview(data).nbytes
    with suppress(AttributeError, OSError, ValueError):
        file = cast("Any", data)
        found: int = os.fstat(file.fileno()).st_size - file.tell()
        return found if found > 0 else None
    return None


async def pieces(data: FileData) -> AsyncIterator[bytes]:
    """Give the content in pieces of PIECE bytes; what blocks is asked in a thread.

    Raises:
        InvalidArgument: It is nothing that has bytes.
    """
    if isinstance(data, str | bytes | bytearray | memoryview):
        view = memoryview(data.encode() if isinstance(data, str) else data).cast("B")
        for at in range(0, len(view), PIECE):
            yield bytes(view[at : at + PIECE])
        return
    async for piece in _regular(_given(data)):
        yield piece


def _given(data: Any) -> AsyncIterator[bytes]:
    read = getattr(data, "read", None)
    if read is not None:
        return _read(read)
    if isinstance(data, AsyncIterable):
        return aiter(cast("AsyncIterable[bytes]", data))
    if isinstance(data, Iterable):
        return _iterate(cast("Iterable[bytes]", data))
    kind = type(data).__name__
    raise InvalidArgument(f"a file's content is str, bytes, a file object or an iterable of bytes, not {kind}")


async def _read(read: Callable[[int], Any]) -> AsyncIterator[bytes]:
    awaited = inspect.iscoroutinefunction(read)
    while data := await (read(PIECE) if awaited else asyncio.to_thread(read, PIECE)):
        yield data.encode() if isinstance(data, str) else data


async def _iterate(items: Iterable[bytes]) -> AsyncIterator[bytes]:
    iterator = iter(items)
    end = object()
    while (item := await asyncio.to_thread(next, iterator, end)) is not end:
        yield cast("bytes", item)


async def _regular(items: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Cut what is large and join what is small."""
    rest = bytearray()
    async for item in items:
        if not isinstance(item, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
            raise InvalidArgument(f"a file's content comes as bytes, not {type(item).__name__}")
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
