"""A proxy on loopback that breaks what goes through it: connections are cut and stalled, at any byte, both ways."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

CHUNK = 1 << 16

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@dataclass
class Faults:
    """What the proxy does to every connection, every `period` seconds: cut it, or hold it up for as long.

    A connection that carries much in less time is broken after every `most` bytes.
    """

    period: float = 0.1
    most: int = 1 << 20
    seed: int = 1
    cuts: int = 0
    stalls: int = 0
    bytes: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is set, things are broken."""


@dataclass(eq=False)
class _Pair:
    """One connection and its other half."""

    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    passes: asyncio.Event = field(default_factory=asyncio.Event)
    left: int | None = None
    """How many bytes may pass before the cut; None: no cut was ordered."""
    carried: int = 0
    """How many bytes passed since it was last broken for them."""

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class FaultProxy:
    """Carries connections to where `dial` leads, badly."""

    def __init__(self, dial: Dial, faults: Faults) -> None:
        self.faults = faults
        self._dial = dial
        self._random = random.Random(faults.seed)  # noqa: S311 - the same faults each time
        self.pairs: set[_Pair] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until it ends or is cut."""
        try:
            there = await self._dial()
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair((writer, there[1]))
        pair.passes.set()
        self.pairs.add(pair)
        pumps = [self._pump(pair, reader, there[1]), self._pump(pair, there[0], writer)]
        try:
            await asyncio.gather(*pumps)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            pair.cut()
            self.pairs.discard(pair)

    async def _pump(self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await pair.passes.wait()
            if pair.left is not None:
                writer.write(data[: pair.left])
                raise ConnectionAbortedError
            writer.write(data)
            self._count(pair, len(data))
            await writer.drain()
        raise ConnectionAbortedError

    def _count(self, pair: _Pair, size: int) -> None:
        self.faults.bytes += size
        pair.carried += size
        if self.faults.go.is_set() and pair.carried >= self.faults.most:
            pair.carried = 0
            self._break(pair)

    async def break_things(self) -> None:
        """Cut or stall every connection, again and again."""
        while True:
            await self.faults.go.wait()
            await asyncio.sleep(self.faults.period)
            # It may have been healed meanwhile: nobody would undo a stall after that.
            if self.faults.go.is_set():
                for pair in list(self.pairs):
                    self._break(pair)

    def _break(self, pair: _Pair) -> None:
        pair.passes.set()
        if self._stalls_next():
            self.faults.stalls += 1
            pair.passes.clear()
        else:
            self.faults.cuts += 1
            # In the middle of whatever comes next; a connection that is quiet is cut at once.
            pair.left = self._random.randrange(CHUNK)
            asyncio.get_running_loop().call_later(self.faults.period / 4, pair.cut)

    def _stalls_next(self) -> bool:
        """Return whether the next fault is a stall: by chance, once there was one of each."""
        if self.faults.stalls and self.faults.cuts:
            return self._random.random() < 0.5
        return not self.faults.stalls

    def heal(self) -> None:
        """Break nothing more, and let pass what is held up."""
        self.faults.go.clear()
        for pair in self.pairs:
            pair.passes.set()

    def die(self) -> None:
        """Hold up for good what is open; who connects anew gets through."""
        for pair in self.pairs:
            pair.passes.clear()


@asynccontextmanager
async def broken(address: str, faults: Faults | None) -> AsyncGenerator[tuple[str, FaultProxy]]:
    """Yield the address of a proxy before `host:port`; without faults it breaks nothing by itself."""
    host, _, port = address.rpartition(":")

    async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(host, int(port))

    proxy = FaultProxy(dial, faults or Faults())
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0, limit=CHUNK)
    async with _breaking(proxy, server, breaks=faults is not None):
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", proxy


@asynccontextmanager
async def broken_socket(path: str, aside: str, faults: Faults) -> AsyncGenerator[FaultProxy]:
    """Stand in for the unix socket at `path`, which is at `aside` by now."""

    async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(aside)

    proxy = FaultProxy(dial, faults)
    server = await asyncio.start_unix_server(proxy.accept, path, limit=CHUNK)
    async with _breaking(proxy, server, breaks=True):
        yield proxy


@asynccontextmanager
async def _breaking(proxy: FaultProxy, server: asyncio.Server, *, breaks: bool) -> AsyncGenerator[None]:
    task = asyncio.create_task(proxy.break_things()) if breaks else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
        server.close()
        for pair in list(proxy.pairs):
            pair.cut()
        await asyncio.sleep(0)
