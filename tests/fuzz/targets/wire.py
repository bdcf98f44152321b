"""What stands for a connection: inputs arrive by calling the protocol, and what it sends is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Any

from tests.fuzz.target import Feed


class Wire(asyncio.Transport):
    """A transport that counts what is written, and can be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.closed = False
        self.protocol: asyncio.BaseProtocol | None = None
        """What took the connection over."""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Note what takes over."""
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Count the bytes."""
        self.sent += len(data)

    def close(self) -> None:
        """Close."""
        self.closed = True

    def abort(self) -> None:
        """Close."""
        self.closed = True

    def is_closing(self) -> bool:
        """Return whether it was closed."""
        return self.closed

    def pause_reading(self) -> None:
        """Go on: an input is fed whole."""

    def resume_reading(self) -> None:
        """Go on."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore them: nothing is kept."""

    def get_write_buffer_size(self) -> int:
        """Return 0."""
        return 0


def inside(module: str) -> Any:
    """Return a module, whose parts for its own use are fed where nothing public comes before them."""
    return import_module(module)


def simple(feed: Feed) -> Callable[[], AbstractAsyncContextManager[Feed]]:
    """Return how a target is opened that keeps nothing between inputs."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Feed]:
        yield feed

    return opened
