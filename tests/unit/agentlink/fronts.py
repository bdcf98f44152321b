"""What stands before an agent in a cloud: TLS with a certificate of an authority, and HTTP alone behind it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

REFUSED = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
STRIPPED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Front:
    """A proxy that passes upgrades to the sandbox that the affinity header names."""

    sockets: dict[str, str]
    """The agents' sockets by the value of the header."""
    strips_upgrades: bool = False
    cut_seconds: float = 0.0
    """After which a connection is cut, as by the time-out of a cloud's function; 0 for never."""
    is_deaf: bool = False
    """Whether nothing arrives at agents any more, as where a machine between is gone."""
    heads: list[bytes] = field(default_factory=list[bytes])
    port: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    def endpoint(self, sandbox: str, host: str = "localhost") -> str:
        """Return the address of an agent behind it."""
        return f"wss://{host}:{self.port}/agent/x?stage=a%20b&affinity=x-session:{sandbox}"

    def cut(self) -> None:
        """Cut every connection."""
        for writer in self.open:
            if not writer.transport.is_closing():
                writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        values = [line.partition(b": ")[2].decode() for line in head.split(b"\r\n") if line.startswith(b"x-session: ")]
        socket = self.sockets.get(values[0]) if values else None
        if self.strips_upgrades or socket is None:
            writer.write(STRIPPED if self.strips_upgrades else REFUSED)
            writer.close()
            return
        agent_reader, agent_writer = await asyncio.open_unix_connection(socket)
        agent_writer.write(head)
        ends = {writer, agent_writer}
        self.open |= ends
        if self.cut_seconds:
            asyncio.get_running_loop().call_later(self.cut_seconds, self.cut)
        try:
            await asyncio.gather(self._pass_in(reader, agent_writer), _pass_on(agent_reader, writer))
        finally:
            self.open -= ends

    async def _pass_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 18):
                if not self.is_deaf:
                    writer.write(data)
                    await writer.drain()
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def front(folder: Path, **sockets: str) -> AsyncGenerator[Front]:
    """Serve a front at localhost, whose certificate the authority at `folder`/authority.pem signed."""
    authority, made = trustme.CA(), Front(sockets)
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Its types name a package that is not installed.
    issued: Any = authority.issue_cert("localhost")
    issued.configure_cert(context)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context, limit=1 << 20)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        made.cut()
        await server.wait_closed()
