"""The Services of a test cluster: what a kube-proxy and the cluster's DNS do, in a thread of the tests.

Each Service's address is one of the engine's bridge. A connection to it is relayed to a pod that is ready, and stays
there when the pod is no longer, until it ends: as a kube-proxy has it. The DNS answers for Services alone.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

from tests.engine import run
from tests.ports import free_port

DOMAIN = "cluster.local"
LOOK_SECONDS = 0.2
BLOCK = 65_536
Request = Callable[[str], Any]
Place = tuple[str, int]


@dataclass(frozen=True)
class ServiceRange:
    """The addresses of a cluster's Services, the API server's own first, and where its DNS answers."""

    network: str
    api_address: str
    bridge: str
    bridge_address: str

    @classmethod
    def beside(cls, bridge: str, address: str) -> ServiceRange:
        """Return a range that belongs to a bridge."""
        third = address.split(".")[2]
        return cls(f"10.97.{third}.0/24", f"10.97.{third}.1", bridge, address)


class ServiceNetwork:
    """Relays connections to Services, and resolves their names."""

    def __init__(self, services: ServiceRange, request: Request, api: Place) -> None:
        self._services = services
        self._request = request
        self._api = api
        self._names: dict[str, str] = {}
        self._endpoints: dict[Place, list[Place]] = {}
        self._servers: dict[Place, asyncio.Server] = {}
        self._addresses: set[str] = set()
        self._published: dict[Place, Place] = {}
        self._relays: set[asyncio.Task[None]] = set()
        self._ended = threading.Event()

    def publish(self, name: str, namespace: str, port: int) -> int:
        """Return a port of this machine's loopback at which a Service answers, as a port-forward does."""
        own = free_port()
        self._published["127.0.0.1", own] = self._names[f"{name}.{namespace}.svc.{DOMAIN}"], port
        return own

    def has(self, name: str, namespace: str) -> bool:
        """Return whether a Service is there."""
        return f"{name}.{namespace}.svc.{DOMAIN}" in self._names

    @contextmanager
    def serve(self) -> Generator[None]:
        """Serve until the block ends."""
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        place = (self._services.bridge_address, 53)
        transport, _ = await loop.create_datagram_endpoint(lambda: _Names(self._names), place)
        try:
            while not self._ended.is_set():
                with suppress(OSError):
                    await self._look()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            transport.close()
            for server in self._servers.values():
                server.close()
            for relay in self._relays:
                relay.cancel()
            await asyncio.gather(*self._relays, return_exceptions=True)
            for address in self._addresses:
                run("ip", "address", "delete", f"{address}/32", "dev", self._services.bridge)

    async def _look(self) -> None:
        services = (await asyncio.to_thread(self._request, "/api/v1/services"))["items"]
        endpoints = (await asyncio.to_thread(self._request, "/api/v1/endpoints"))["items"]
        by_name = {_name(endpoint): endpoint for endpoint in endpoints}
        found: dict[Place, list[Place]] = {}
        for service in services:
            address = service["spec"]["clusterIP"]
            self._names[f"{_name(service)}.svc.{DOMAIN}"] = address
            for port in service["spec"]["ports"]:
                ready = _ready(by_name.get(_name(service), {}), port.get("name"))
                found[address, port["port"]] = [self._api] if address == self._services.api_address else ready
        self._endpoints = found
        for place in [*found, *self._published]:
            if place not in self._servers:
                await self._open(place)

    async def _open(self, place: Place) -> None:
        if place[0] not in self._addresses and place not in self._published:
            run("ip", "address", "add", f"{place[0]}/32", "dev", self._services.bridge)
            self._addresses.add(place[0])
        self._servers[place] = await asyncio.start_server(self._relaying(place), *place)

    def _relaying(self, place: Place) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._relays.add(task)
            try:
                await self._relay(self._published.get(place, place), reader, writer)
            except (OSError, asyncio.CancelledError):
                return
            finally:
                self._relays.discard(task)
                writer.close()

        return relay

    async def _relay(self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = list(self._endpoints.get(place, ()))
        random.shuffle(ready)
        for target in ready:
            with suppress(OSError):
                back, forth = await asyncio.wait_for(asyncio.open_connection(*target), 2.0)
                break
        else:
            return
        try:
            await asyncio.gather(_copy(reader, forth), _copy(back, writer))
        finally:
            forth.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(BLOCK):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()


def _name(one: Mapping[str, Any]) -> str:
    return f"{one['metadata']['name']}.{one['metadata']['namespace']}"


def _ready(endpoints: Mapping[str, Any], port_name: str | None) -> list[Place]:
    return [
        (address["ip"], port["port"])
        for subset in endpoints.get("subsets") or ()
        for port in subset.get("ports") or ()
        if port.get("name") == port_name
        for address in subset.get("addresses") or ()
    ]


class _Names(asyncio.DatagramProtocol):
    """A DNS server (RFC 1035) for the A records of Services; names that are nobody's do not exist."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Loops of other makers have transports of their own.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        assert self._transport is not None
        self._transport.sendto(self._answer(data), addr)

    def _answer(self, data: bytes) -> bytes:
        labels: list[str] = []
        at = 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode().lower())
            at += 1 + data[at]
        question = data[12 : at + 5]
        address = self._names.get(".".join(labels))
        is_a = question[-4:-2] == b"\x00\x01"
        found = address is not None and is_a
        # Answered with authority; without the name: NXDOMAIN.
        flags = b"\x85\x80" if address else b"\x85\x83"
        head = data[:2] + flags + b"\x00\x01" + (b"\x00\x01" if found else b"\x00\x00") + b"\x00\x00\x00\x00"
        if not found or address is None:
            return head + question
        record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04" + bytes(int(part) for part in address.split("."))
        return head + question + record
