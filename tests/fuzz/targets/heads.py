"""Heads of HTTP and what else programs in sandboxes send to proxies: egress, exposed ports, devices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, cast

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from pydantic import SecretStr

from sandmesh._client.tcp import hpack
from sandmesh.api.agent.v1.agent_pb2 import EgressEnded, EgressFrame
from sandmesh.api.port.v1 import port_pb2
from sandmeshd.drivers.egress.devices.adb_server import AdbServer
from sandmeshd.drivers.egress.devices.session import DeviceSession
from sandmeshd.drivers.egress.policy import EgressRefused
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import ProxyStream
from sandmeshd.drivers.egress.targets import read_authority, read_url
from sandmeshd.gateway.ports.proxy import Proxy
from sandmeshd.gateway.ports.tokens import Signer, TokenTarget
from tests.fuzz import target
from tests.fuzz.mutation import encoded, mutated, text, value, varied
from tests.fuzz.target import Fault, Feed, cuts
from tests.unit.drivers.egress.harness import Names, Program, Redirected, host

from .wire import simple

_WORDS = (
    *(b"\r\n", b"\n", b"\r", b": ", b" ", b"\t", b"\0", b"\xff", b"\r\n\r\n", b"101", b"100", b"204", b"HTTP/9.9 "),
    *(b"Content-Length: ", b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"0\r\n\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffff\r\n", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    *(b"Location: http://local\thost:8080/\r\n", b"Location: http://[/\r\n", b"Set-Cookie: a=b; Path =/; Domain =x"),
    *(b"http://", b"https://", b"CONNECT ", b"a.test:80", b"[::1]:80", b"user:pw@a.test", b"%61.test"),
    *(b"Host: b.test\r\n", b"HTTP/1.1 ", b"HTTP/1.0 "),
)
_REQUESTS = (
    b"GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
    b"POST http://a.test/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
    b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\nhello",
)
_RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=b; Path=/\r\n\r\nhello",
    b"HTTP/1.1 302 Found\r\nLocation: http://localhost:8080/x\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close, x\r\nX: y\r\nContent-Encoding: gzip\r\n\r\nhello",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x02hi",
)
_DEVTOOLS = {
    "Browser": "x",
    "webSocketDebuggerUrl": "ws://localhost:9222/devtools/browser/1",
    "devtoolsFrontendUrl": "x",
}
_SIGNER, _EXPIRES = Signer(SecretStr("s" * 32)), 2**32
_ADB = (b"host:devices", b"host:version", b"host:transport:one", b"host:tport:any", b"shell:ls", b"host:kill", b"sync:")


def _make_request(random: Random) -> bytes:
    data = random.choice(_REQUESTS)
    return mutated(random, data, _WORDS) if random.random() < 0.9 else data


@asynccontextmanager
async def _open_egress() -> AsyncGenerator[Feed]:
    async with host() as served:
        settings = EgressSettings(head_seconds=1.0, idle_seconds=1.0)

        async def feed(data: bytes) -> str:
            names, outlet = Names(a_test=[["10.0.0.1"]]), Redirected(served.port)
            program = Program(names, outlet, grant=["a.test"], settings=settings)
            for piece in cuts(data):
                program.write(piece)
            program.end()
            served.got.clear()
            answer = await program.serve()
            for got in served.got:
                if b"Host: a.test\r\n" not in got and not data.startswith(b"CONNECT"):
                    raise Fault(f"a request without the target's Host left: {got!r}")
            return answer[9:12].decode("latin-1") or ("reset" if program.reset else "nothing")

        yield feed


def _make_place(random: Random) -> bytes:
    place = random.choice(("a.test:80", "[::1]:443", "http://a.test/x?y#z", "http://[::1]:80/", "a.test", ":1"))
    return mutated(random, place.encode(), _WORDS)


def _feed_place(data: bytes) -> str:
    """Read where a request is to go, in both forms."""
    place, refused = data.decode("latin-1"), 0
    for read in (read_authority, read_url):
        try:
            read(place)
        except EgressRefused:
            refused += 1
    return "EgressRefused" if refused == 2 else "ok"


def _make_response(random: Random) -> bytes:
    if random.random() < 0.3:
        page = varied(random, _DEVTOOLS)
        body = encoded(random, random.choice((page, page, [page, page], value(random))))
        if random.random() < 0.3:
            body = body.replace(b"localhost", random.choice((b"[", b"[::", b"x]y", b"\xff")))
        return b"d" + b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    data = random.choice(_RESPONSES)
    return b"p" + (mutated(random, data, _WORDS) if random.random() < 0.9 else data)


class _Makers:
    async def owner(self, target: TokenTarget) -> str:
        """Return the owner of a target."""
        return target.sandbox_id


class _Answering(aiohttp.BaseConnector):
    """Connects every request to bytes that are there already."""

    def __init__(self) -> None:
        super().__init__(force_close=True)
        self.answer = b""

    def host(self, target: TokenTarget) -> str:
        """Return the host that stands for a target."""
        return target.exposure_id

    async def _create_connection(self, req: Any, traces: list[Any], timeout: Any) -> ResponseHandler:
        """Connect to what answers with the bytes, once it was sent a request."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(self._factory, "127.0.0.1", self.port)
        return protocol

    port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer."""
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in cuts(self.answer):
                writer.write(piece)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def _open_ports() -> AsyncGenerator[Feed]:
    """Serve the proxy of exposed ports, and let what listens on them send anything."""
    answering, signer = _Answering(), _SIGNER
    inner = await asyncio.start_server(answering.serve, "127.0.0.1", 0)
    answering.port = inner.sockets[0].getsockname()[1]
    proxy = Proxy(signer, cast("Any", _Makers()), cast("Any", answering), None)
    application = web.Application()
    proxy.add(application)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = str(runner.addresses[0][0]), int(runner.addresses[0][1])
    kinds = {b"p": port_pb2.EXPOSURE_KIND_UNSPECIFIED, b"d": port_pb2.EXPOSURE_KIND_DEVTOOLS}
    tokens = {
        kind: signer.sign(TokenTarget("sb_one", "e" * 8, 8080, _EXPIRES, number)) for kind, number in kinds.items()
    }

    async def feed(data: bytes) -> str:
        kind, answering.answer = data[:1], data[1:]
        path = f"/p/{tokens[kind]}/" + ("json/version" if kind == b"d" else "x")
        return await _ask(address, path, upgrade=len(data) % 4 == 0)

    try:
        yield feed
    finally:
        await proxy.close()
        await runner.cleanup()
        inner.close()


async def _ask(address: tuple[str, int], path: str, *, upgrade: bool) -> str:
    """Send a request and return the status of its answer; whatever the port sends, there is one."""
    reader, writer = await asyncio.open_connection(*address)
    extra = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n"
    lines = extra.format("dGhlIHNhbXBsZSBub25jZQ==") if upgrade else "Connection: close\r\n"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n".encode())
    answer = b""
    async with asyncio.timeout(20):
        with suppress(OSError):
            answer = await reader.read(1 << 16)
    writer.close()
    if answer.startswith(b"HTTP/1.1 500"):
        raise Fault(f"the gateway answered {answer[:200]!r}")
    return answer[9:12].decode("latin-1") or "broken off"


def _make_adb(random: Random) -> bytes:
    parts = [random.choice(_ADB) for _ in range(random.randint(1, 3))]
    data = b"".join(b"%04x" % len(part) + part for part in parts)
    return mutated(random, data, (b"-001", b"ffff", b"0_01", b"+001", b" 001")) if random.random() < 0.7 else data


@asynccontextmanager
async def _open_adb() -> AsyncGenerator[Feed]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(0.2):
                while True:
                    await reader.readexactly(int(await reader.readexactly(4), 16))
                    writer.write(b"OKAY" + b"0002ok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def feed(data: bytes) -> str:
        said = bytearray()

        async def send(frame: EgressFrame) -> None:
            said.extend(frame.data)

        stream = ProxyStream(1, send)
        for piece in cuts(data):
            stream.take(EgressFrame(data=piece))
        stream.take(EgressFrame(ended=EgressEnded()))
        async with asyncio.timeout(20):
            await DeviceSession(stream, AdbServer(f"127.0.0.1:{port}"), "one", 5.0).serve()
        return said[:4].decode("latin-1") or "reset"

    try:
        yield feed
    finally:
        server.close()


def _make_hpack(random: Random) -> bytes:
    fields = [(random.choice((":status", "grpc-status", "x-a")), text(random)[:50]) for _ in range(4)]
    data = hpack.encode((name, found) for name, found in fields if found.isascii())
    return mutated(random, data) if random.random() < 0.7 else data


def _feed_hpack(data: bytes) -> str:
    """Read a block of header fields of HTTP/2."""
    try:
        hpack.decode(data)
    except hpack.HpackError:
        return "HpackError"
    return "ok"


def _make_token(random: Random) -> bytes:
    made = _SIGNER.sign(TokenTarget("sb_one", "e" * 8, 8080, _EXPIRES))
    return mutated(random, made.encode())


def _feed_token(data: bytes) -> str:
    """Read the token of a port's URL: none but those that were signed are good."""
    good = _SIGNER.sign(TokenTarget("sb_one", "e" * 8, 8080, _EXPIRES))
    made = data.decode("latin-1")
    if _SIGNER.read(made) is not None and made != good:
        raise Fault("a token that nobody signed is good")
    return "ok" if made == good else "refused"


TARGETS = (
    target.Target("egress-http", _make_request, _open_egress),
    target.Target("egress-places", _make_place, simple(_feed_place)),
    target.Target("port-responses", _make_response, _open_ports),
    target.Target("port-tokens", _make_token, simple(_feed_token)),
    target.Target("adb", _make_adb, _open_adb),
    target.Target("hpack", _make_hpack, simple(_feed_hpack)),
)
