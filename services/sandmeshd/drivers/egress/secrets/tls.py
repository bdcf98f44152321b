"""TLS over whatever carries bytes, without a separate transport: the pace of one side is the pace of the other."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

_PIECE_BYTES = 64 * 1024

Read = Callable[[], Awaitable[bytes]]
Write = Callable[[bytes], Awaitable[None]]
Wrap = Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject]


class TlsChannel:
    """One side of TLS."""

    def __init__(
        self,
        wrap: Wrap,
        read: Read,
        write: Write,
        first: bytes = b"",
        resumable: Callable[[ssl.SSLSession], None] | None = None,
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = wrap(self._incoming, self._outgoing)
        self._read = read
        self._write = write
        self._resumable = resumable
        # Bytes of TLS must leave in the order in which they were made.
        self._order = asyncio.Lock()
        if first:
            self._incoming.write(first)

    async def handshake(self) -> None:
        """Agree with the peer.

        Raises:
            ssl.SSLError: The two cannot agree, or the peer said no by an alert.
            OSError: The peer is gone.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLError:
                with suppress(OSError):
                    await self._flush()
                raise
            else:
                await self._flush()
                return

    async def read(self) -> bytes:
        """Return the next bytes, none at the end.

        Raises:
            OSError: The peer is gone, or breaks the rules of TLS.
        """
        while True:
            try:
                data = self._tls.read(_PIECE_BYTES)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            else:
                self._offer_session()
                return data

    def _offer_session(self) -> None:
        # With TLS 1.3 it comes after the handshake, before the first bytes or beside them.
        if self._resumable is not None and (session := self._tls.session) is not None and session.has_ticket:
            self._resumable(session)
            self._resumable = None

    async def write(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            OSError: The peer is gone.
        """
        if data:
            self._tls.write(data)
            await self._flush()

    async def end(self) -> None:
        """Send the end, without waiting for the peer's."""
        with suppress(OSError):
            self._tls.unwrap()
        with suppress(OSError):
            await self._flush()

    async def _fill(self) -> None:
        data = await self._read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        async with self._order:
            data = self._outgoing.read()
            if data:
                await self._write(data)
