"""A program inside a sandbox as the proxy sees it, names that answer as told, and hosts that note what they get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandmesh.api.agent.v1.agent_pb2 import EgressEnded, EgressFrame
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.drivers.egress.exchange import Exchange
from sandmeshd.drivers.egress.grants import policy_of
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget
from sandmeshd.drivers.egress.reserved import Reserved
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import ProxyStream
from sandmeshd.drivers.egress.upstream.dialer import Dialer, Upstream
from sandmeshd.drivers.egress.upstream.outlets import Connection, Outlet


class Names:
    """A resolver: each name has answers that are given in turn, the last for ever."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name.replace("_", "."): list(addresses) for name, addresses in answers.items()}
        self.lookups: list[str] = []

    async def addresses(self, host: str) -> list[str]:
        """Give the next answer; addresses are their own."""
        self.lookups.append(host)
        if host not in self._answers:
            if host.replace(".", "").isdigit() or ":" in host:
                return [host]
            raise OSError("no such name")
        answers = self._answers[host]
        return list(answers.pop(0) if len(answers) > 1 else answers[0])


class Redirected:
    """An outlet that notes what it is asked to connect to, and connects to one place instead."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.opened: list[tuple[str, int]] = []

    def takes_names(self, target: EgressTarget) -> bool:
        """Say no."""
        return False

    async def open(self, target: EgressTarget, addresses: Sequence[str]) -> Connection:
        """Connect to a place of the test's."""
        self.opened.append((addresses[0], target.port))
        return await asyncio.open_connection("127.0.0.1", self._port)


class Here:
    """An outlet to this machine: what a test's names lead to, an address of a private network, is served here."""

    def takes_names(self, target: EgressTarget) -> bool:
        """Say no."""
        return False

    async def open(self, target: EgressTarget, addresses: Sequence[str]) -> Connection:
        """Connect to the target's port of this machine."""
        return await asyncio.open_connection("127.0.0.1", target.port)


@dataclass
class Host:
    """A server that notes each request's bytes and answers with a fixed text."""

    answer: bytes
    port: int = 0
    got: list[bytes] = field(default_factory=list[bytes])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take what comes until there is a pause, then answer."""
        data = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" in data.lower():
            data += await reader.readuntil(b"0\r\n\r\n")
        self.got.append(data)
        writer.write(self.answer)
        await writer.drain()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncGenerator[int]:
    """Serve connections at a port of this machine; at the end every one of them has been served to its end."""
    handled: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled.append(asyncio.create_task(handle(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        async with asyncio.timeout(20):
            await asyncio.gather(*handled, return_exceptions=True)
            await server.wait_closed()


@asynccontextmanager
async def host(answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") -> AsyncGenerator[Host]:
    """Run a host."""
    made = Host(answer)
    async with serving(made.serve) as made.port:
        yield made


@dataclass
class Program:
    """A program's connection to the proxy."""

    names: Names
    outlet: Outlet = field(default_factory=Here)
    grant: Sequence[str] = ()
    public: bool = False
    settings: EgressSettings = field(default_factory=EgressSettings)
    refusals: list[EgressRefused] = field(default_factory=list[EgressRefused])
    received: bytes = b""
    ended: bool = False
    reset: bool = False

    def __post_init__(self) -> None:
        """Open the connection."""
        self.stream = ProxyStream(1, self._send)

    async def _send(self, frame: EgressFrame) -> None:
        self.received += frame.data
        self.ended |= frame.HasField("ended")
        self.reset |= frame.HasField("reset")
        if frame.data:
            self.stream.take(EgressFrame(credit=len(frame.data)))

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.stream.take(EgressFrame(data=data))

    def end(self) -> None:
        """Send nothing more."""
        self.stream.take(EgressFrame(ended=EgressEnded()))

    async def serve(self) -> bytes:
        """Be served to the end; give what came."""
        mode = pb.NETWORK_MODE_PUBLIC if self.public else pb.NETWORK_MODE_HOSTS
        policy = policy_of(pb.NetworkGrant(mode=mode, hosts=self.grant), self.settings)
        dialer = Dialer(policy, Upstream(self.settings, self.names, self.outlet, Reserved(self.names)))
        async with asyncio.timeout(20):
            await Exchange(self.stream, dialer, None, self.settings, self.refusals.append).serve()
        return self.received

    async def ask(self, data: bytes) -> bytes:
        """Send bytes and the end, and be served."""
        self.write(data)
        self.end()
        return await self.serve()
