"""A client of the host's adb server: its requests, and a shell on a device.

The protocol is that of Android's SERVICES.TXT and OVERVIEW.TXT: a request is four hex digits of its length and its
text, the answer OKAY or FAIL with a message of the same form.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Protocol

_SECONDS: Final = 10.0
_OKAY, _FAIL = b"OKAY", b"FAIL"
_MOST_BYTES: Final = 256 << 10


class AdbFailed(Exception):
    """The adb server, or the device, does not do what it was asked for; the text says why."""


class ByteSource(Protocol):
    """Where bytes come from."""

    async def readexactly(self, count: int, /) -> bytes:
        """Return so many bytes.

        Raises:
            EOFError: There are fewer.
        """
        ...


class AdbServer:
    """The adb server of the host, at `address`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._host, self._port = host.strip("[]"), int(port)

    async def connect(self) -> AdbConnection:
        """Open a connection.

        Raises:
            AdbFailed: Nothing answers there.
        """
        try:
            async with asyncio.timeout(_SECONDS):
                return AdbConnection(*await asyncio.open_connection(self._host, self._port, limit=_MOST_BYTES))
        except OSError:
            message = f"no adb server answers at {self.address} of the node: its administrator runs `adb start-server`"
            raise AdbFailed(message) from None

    async def query(self, request: str) -> bytes:
        """Return the message that a request is answered with.

        Raises:
            AdbFailed: As the server says, or it does not answer.
        """
        async with self._opened() as connection:
            await connection.ask(request.encode())
            return await connection.message()

    async def shell(self, serial: str, command: str) -> bytes:
        """Run a command on a device to its end and return what it wrote.

        Raises:
            AdbFailed: The device is not there.
        """
        async with self._opened() as connection:
            await connection.ask(f"host:transport:{serial}".encode())
            await connection.ask(f"shell:{command}".encode())
            return await connection.reader.read(-1)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[AdbConnection]:
        connection = await self.connect()
        try:
            yield connection
        except (OSError, EOFError):
            raise AdbFailed(f"the adb server at {self.address} ended the connection") from None
        finally:
            connection.writer.close()


class AdbConnection:
    """A connection to the adb server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> None:
        """Send a request and wait until it is accepted.

        Raises:
            AdbFailed: It is not.
            OSError, EOFError: The connection broke.
        """
        self.writer.write(framed(request))
        await self.writer.drain()
        answer = await self.reader.readexactly(4)
        if answer != _OKAY:
            raise AdbFailed((await self.message()).decode("utf-8", "replace") if answer == _FAIL else "no adb server")

    async def message(self) -> bytes:
        """Return a message.

        Raises:
            AdbFailed: It has no length.
            OSError, EOFError: The connection broke.
        """
        return await read_framed(self.reader)


def framed(text: bytes) -> bytes:
    """Return a text with its length before it."""
    return b"%04x" % len(text) + text


async def read_framed(source: ByteSource) -> bytes:
    """Read a text that has its length before it.

    Raises:
        AdbFailed: It has no length.
        OSError, EOFError: The connection broke.
    """
    digits = await source.readexactly(4)
    try:
        length = int(digits, 16)
    except ValueError:
        raise AdbFailed("this is not the protocol of adb") from None
    return await source.readexactly(length)
