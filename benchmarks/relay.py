"""`python -m benchmarks.relay OWN ONWARD`: passes bytes on and back between unix sockets; without ONWARD, echoes."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class Relay(asyncio.Protocol):
    """One connection; what it hears goes to the other end, or back where there is none."""

    def __init__(self, onward: Relay | None = None) -> None:
        self.transport: asyncio.Transport | None = None
        self.other = onward

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and be what the other end answers."""
        self.transport = cast("asyncio.Transport", transport)
        if self.other is not None:
            self.other.other = self

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        target = (self.other or self).transport
        if target is not None:
            target.write(data)


async def serve(own: str, onward: str) -> None:
    """Serve until the process is ended."""
    loop = asyncio.get_running_loop()
    made: Relay | None = None
    if onward:
        _, made = await loop.create_unix_connection(Relay, onward)
    await loop.create_unix_server(lambda: Relay(made), own)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:]))
