"""What stands between a mesh and an agent elsewhere: it ends TLS for it, and may forget connections."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sandmeshd.agentlink.addresses import tls_endpoint
from sandmeshd.drivers.node.identity import TlsIdentity, new_identity


class Middlebox:
    """Carries connections to an agent's socket."""

    def __init__(self, socket: Path) -> None:
        self.endpoint = ""
        self.accepted = 0
        """How many connections came so far."""
        self._socket = socket
        self._open: set[asyncio.StreamWriter] = set()
        self._forgotten: set[asyncio.StreamWriter] = set()

    def forget(self) -> None:
        """Lose from now on what is sent on the connections that there are, and tell neither end."""
        self._forgotten |= self._open

    def cut(self) -> None:
        """Reset the connections that there are."""
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        agent_reader, agent_writer = await asyncio.open_unix_connection(self._socket)
        ends = {writer, agent_writer}
        self._open |= ends
        # Only now: who counts it may cut it.
        self.accepted += 1
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, agent_writer))
                both.create_task(self._carry(agent_reader, writer))
        finally:
            self._open -= ends
            self._forgotten -= ends

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if writer not in self._forgotten:
                    writer.write(data)
                    await writer.drain()
        if writer not in self._forgotten:
            writer.transport.abort()


def _context(identity: TlsIdentity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(identity.pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


@asynccontextmanager
async def middlebox(socket: Path) -> AsyncGenerator[Middlebox]:
    """Run one at a port of its own, until the block ends."""
    made, identity = Middlebox(socket), new_identity()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=_context(identity))
    made.endpoint = tls_endpoint("127.0.0.1", server.sockets[0].getsockname()[1], identity.pin)
    try:
        yield made
    finally:
        server.close()
        made.cut()
        # Both ends of each connection are told, or a loop that closes finds them open.
        await asyncio.sleep(0.05)
