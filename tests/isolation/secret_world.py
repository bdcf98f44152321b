"""A host that speaks TLS and notes what it gets, and sandboxes that have a secret for it."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import trustme

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.auth.sealer import Sealer
from tests.isolation.world import Box, World

MESH_SECRET = "a secret of a mesh that no other mesh has"  # noqa: S105 - a test's
VALUE = "sk-live-4fa1c07be29d5533"
PLACEHOLDER = "sandmesh_secret_of_this_test"
VARIABLE = "API_KEY"


def sandbox_secret(hosts: Sequence[str], value: str = VALUE) -> sandbox_pb2.SandboxSecret:
    """Return a secret as an allocator resolves it."""
    sealed = Sealer(MESH_SECRET).seal(value, "", hosts) if value else b""
    return sandbox_pb2.SandboxSecret(hosts=hosts, placeholder=PLACEHOLDER, sealed=sealed)


@asynccontextmanager
async def secret_box(world: World, hosts: Sequence[str], granted: Sequence[str]) -> AsyncGenerator[Box]:
    """Start a sandbox with a secret for `hosts`, which reaches what is granted."""
    name = f"sb_{secrets.token_hex(13)}"
    spec = sandbox_pb2.SandboxSpec(
        template="base",
        network=sandbox_pb2.NetworkGrant(mode=sandbox_pb2.NETWORK_MODE_HOSTS, hosts=granted),
        environment={VARIABLE: PLACEHOLDER},
        secrets={VARIABLE: sandbox_secret(hosts)},
    )
    request = pb.CreateSandboxRequest(sandbox_id=name, mesh_id=world.mesh_id, spec=spec)
    try:
        yield Box((await world.driver.create_sandbox(request)).sandbox)
    finally:
        await world.remove(name)


async def change_value(world: World, box: Box, hosts: Sequence[str], value: str) -> None:
    """Change the value of a running sandbox's secret; an empty one takes it away."""
    request = pb.ChangeNetworkRequest(
        sandbox_id=box.runtime.sandbox_id, secrets={VARIABLE: sandbox_secret(hosts, value)}
    )
    await world.driver.change_network(request)


@dataclass
class TlsHost:
    """An HTTP server over TLS: it notes requests, and answers with the request's body after its headers."""

    port: int = 0
    requests: list[tuple[h11.Request, bytes]] = field(default_factory=list[tuple[h11.Request, bytes]])
    tunnelled: bytes = b""

    def headers(self, number: int = -1) -> dict[str, str]:
        """Return the headers of a request, names in lower case."""
        return {name.decode(): value.decode() for name, value in self.requests[number][0].headers}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        http = h11.Connection(h11.SERVER)
        while (request := await _next(http, reader)) is not None:
            if not isinstance(request, h11.Request):
                break
            body = b""
            while isinstance(event := await _next(http, reader), h11.Data):
                body += bytes(event.data)
            self.requests.append((request, body))
            if b"websocket" in dict(request.headers).get(b"upgrade", b""):
                await self._switch(http, reader, writer)
                break
            shown = b"".join(name + b": " + value + b"\n" for name, value in request.headers) + b"\n" + body
            writer.write(http.send(h11.Response(status_code=200, headers=[("Content-Length", str(len(shown)))])) or b"")
            writer.write(http.send(h11.Data(data=shown)) or b"")
            writer.write(http.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            if http.our_state is not h11.DONE:
                break
            http.start_next_cycle()
        writer.close()

    async def _switch(self, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = [("Upgrade", "websocket"), ("Connection", "Upgrade")]
        writer.write(http.send(h11.InformationalResponse(status_code=101, headers=headers)) or b"")
        self.tunnelled = http.trailing_data[0] or await reader.read(1024)
        writer.write(b"heard " + self.tunnelled)
        await writer.drain()


async def _next(http: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := http.next_event()) is h11.NEED_DATA:
        data = await reader.read(65536)
        http.receive_data(data)
        if not data and http.their_state is h11.IDLE:
            return None
    return event


@asynccontextmanager
async def tls_host(authority: trustme.CA, *names: str) -> AsyncGenerator[TlsHost]:
    """Serve with a certificate for these names."""
    host = TlsHost()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Its types name a package that is not installed.
    issued: Any = authority.issue_cert(*names)
    issued.configure_cert(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await host.serve(reader, writer)
        except OSError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()


def write_authority(authority: trustme.CA, folder: Path) -> Path:
    """Write an authority's certificate to a file of a folder."""
    path = folder / "authority.pem"
    authority.cert_pem.write_to_path(path)
    return path
