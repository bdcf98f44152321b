"""File calls: short ones on the shared stream, bulk transfers on separate streams."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from sandmesh._calls.call import Order
from sandmesh._calls.event_stream import EventStream
from sandmesh._calls.short_call import SMALL, read_facts, run_quick
from sandmesh._client.connection import Connection
from sandmesh._files.transfer import open_transfer
from sandmesh.errors import Cancelled, DeadlineExceeded, InvalidArgument
from sandmesh.events import Output, Result, Started, read_result
from sandmesh.files import ByteStream, FilePath, Progressed, read_info


def is_interrupted(result: Result) -> bool:
    """Return whether a transfer was cancelled because its reader seemed to be gone: it may be resumed."""
    return result.is_error and result.reason == "CANCELLED"


def check_result(result: Result) -> dict[str, Any]:
    """Return a result's facts.

    Raises:
        OSError: The error of the sandbox's system, as the subclass of its errno.
        DeadlineExceeded: It timed out.
        Cancelled: It was cancelled.
    """
    facts = result.structured or {}
    if not result.is_error:
        return facts
    if result.reason == "TIMED_OUT":
        raise DeadlineExceeded(f"{result.message}: it timed out; give the box a longer timeout")
    if result.reason == "CANCELLED":
        raise Cancelled(result.message)
    number = facts.get("errno")
    raise OSError(number if isinstance(number, int) else errno.EIO, result.message)


# How often a download that makes no progress is retried.
ATTEMPTS = 3


class FileCalls:
    """The file calls of one sandbox."""

    def __init__(self, order: Callable[[str, bytes], Order], connect: Callable[[], Connection]) -> None:
        self._make_order = order
        self._connect = connect

    async def open(self, path: FilePath, offset: int = 0, length: int | None = None) -> ByteStream:
        """Open a file for reading.

        Raises:
            OSError: It cannot be read.
        """
        check_range(offset, length)
        facts: dict[str, Any] = {}
        chunks = self._resumed(path, offset, length, facts)
        try:
            await anext(chunks)  # the file's facts come first
        except BaseException:
            await chunks.aclose()
            raise
        return ByteStream(read_info(facts), chunks)

    async def _resumed(
        self, path: FilePath, offset: int, length: int | None, facts: dict[str, Any]
    ) -> AsyncGenerator[bytes]:
        """Yield a file's bytes, resuming after an interruption; the first chunk is empty, once the file is open."""
        at, attempts = offset, 0
        while True:
            arguments = {"path": path, "offset": at, "version": facts.get("version", "")}
            if length is not None:
                arguments["length"] = length - (at - offset)
            before = at
            async with open_transfer(self._connect(), self._order("fs.read", arguments)) as transfer:
                async with aclosing(transfer.chunks()) as chunks:
                    async for chunk in chunks:
                        if not facts:
                            facts.update(transfer.facts)
                            yield b""
                        at += len(chunk)
                        yield chunk
                result = read_result(transfer.finished())
            attempts = 0 if at > before else attempts + 1
            if is_interrupted(result) and facts and attempts < ATTEMPTS:
                continue
            check_result(result)
            if not facts:
                facts.update(transfer.facts)
                yield b""
            return

    async def send(self, tool: str, arguments: Mapping[str, Any], source: AsyncIterator[bytes]) -> dict[str, Any]:
        """Run a call with bulk input and return its facts."""
        async with open_transfer(self._connect(), self._order(tool, arguments), source) as transfer:
            async for _ in transfer.chunks():
                pass
            transfer.check_input()
            return check_result(read_result(transfer.finished()))

    async def ask(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a short call and return its facts."""
        return await self.put(tool, arguments, None)

    async def put(self, tool: str, arguments: Mapping[str, Any], data: bytes | None) -> dict[str, Any]:
        """Run a short call with at most SMALL bytes of input and return its facts."""
        quick = await run_quick(self._connect().mux, self._order(tool, arguments), data)
        return check_result(read_result(quick.done.result()))

    async def read_small(self, path: FilePath, offset: int, length: int | None) -> bytes | None:
        """Read a file in one short call; return None if it has more than SMALL bytes.

        Raises:
            OSError: It cannot be read.
        """
        arguments = {"path": path, "offset": offset, "length": min(length or SMALL, SMALL)}
        quick = await run_quick(self._connect().mux, self._order("fs.read", arguments))
        check_result(read_result(quick.done.result()))
        remaining = quick.facts["size"] - offset
        complete = len(quick.data) >= min(remaining, remaining if length is None else length)
        return bytes(quick.data) if complete else None

    async def receive(self, tool: str, arguments: Mapping[str, Any]) -> AsyncGenerator[bytes]:
        """Run a call with bulk output and yield its chunks."""
        async with open_transfer(self._connect(), self._order(tool, arguments)) as transfer:
            async with aclosing(transfer.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
            check_result(read_result(transfer.finished()))

    async def follow(self, tool: str, arguments: Mapping[str, Any]) -> AsyncGenerator[list[dict[str, Any]]]:
        """Run a call that does not end by itself, yielding its lines of JSON as they arrive; first an empty list."""
        order = replace(self._order(tool, arguments), timeout=0.0)
        async with EventStream(lambda: self._connect().mux, order) as events:
            rest = b""
            async for event in events:
                if isinstance(event, Started):
                    yield []
                elif isinstance(event, Output):
                    whole, _, rest = (rest + event.data).rpartition(b"\n")
                    yield [read_facts(line) for line in whole.splitlines()]
                elif isinstance(event, Result):
                    check_result(event)

    async def output(self, tool: str, arguments: Mapping[str, Any]) -> bytes:
        """Run a call on the shared stream and return all its output."""
        data = bytearray()
        async with EventStream(lambda: self._connect().mux, self._order(tool, arguments)) as events:
            async for event in events:
                if isinstance(event, Output):
                    data += event.data
                elif isinstance(event, Result):
                    check_result(event)
        return bytes(data)

    def _order(self, tool: str, arguments: Mapping[str, Any]) -> Order:
        plain = {name: _plain(value) for name, value in arguments.items()}
        # Bytes of names that are not UTF-8 are encoded as \udcXX, which only ASCII JSON can represent.
        return self._make_order(tool, json.dumps(plain).encode())


def check_range(offset: int, length: int | None) -> None:
    """Check an offset and a length.

    Raises:
        InvalidArgument: One of them is negative.
    """
    if offset < 0 or (length is not None and length < 0):
        raise InvalidArgument("offset and length must not be negative")


def _plain(value: Any) -> Any:
    return os.fsdecode(cast("FilePath", value)) if isinstance(value, bytes | os.PathLike) else value


async def counted(chunks: AsyncIterator[bytes], progress: Progressed | None, total: int) -> AsyncIterator[bytes]:
    """Yield the chunks, and report the bytes so far to `progress`."""
    done = 0
    async for chunk in chunks:
        yield chunk
        done += len(chunk)
        if progress is not None:
            progress(done, total)
