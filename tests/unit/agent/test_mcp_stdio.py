"""The pipes between an MCP server and the process that speaks MCP."""

from __future__ import annotations

import asyncio
import json
import os

import anyio
import pytest

from sandmeshd.agent.mcp.client.stdio import InvalidOutput, open_stdio

MIB = 1 << 20


def _message(size: int) -> bytes:
    """Return a message of so many bytes, without the end of its line."""
    empty = json.dumps({"jsonrpc": "2.0", "method": "x", "params": {"text": ""}}).encode()
    return empty.replace(b'""', b'"' + b"a" * (size - len(empty)) + b'"')


@pytest.mark.parametrize(("size", "broken"), [(80 * MIB, ""), (80 * MIB + 1, "it wrote a message of more than 80 MiB")])
async def test_a_message_is_refused_only_over_the_size_that_the_refusal_names(size: int, broken: str) -> None:
    stdin, stdout = os.pipe(), os.pipe()
    invalid = InvalidOutput()
    async with open_stdio((stdin[1], stdout[0]), invalid) as (incoming, _):
        writing = asyncio.create_task(asyncio.to_thread(_write, stdout[1], _message(size) + b"\n"))
        received: list[str] = []
        with anyio.move_on_after(60):
            received = [type(message).__name__ async for message in incoming]
        assert received == ([] if broken else ["SessionMessage"])
        assert invalid.broken == broken
    await writing
    os.close(stdin[0])


def _write(pipe: int, data: bytes) -> None:
    try:
        with os.fdopen(pipe, "wb", 0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) or 0 :]
    except BrokenPipeError:  # the reader gave up
        pass
