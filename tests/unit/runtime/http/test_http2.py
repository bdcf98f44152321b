"""HTTP/2 at listeners that offer it: what its clients send and get, and those that break its rules."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from aiohttp import web
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event, ResponseReceived, StreamEnded

from sandmeshd.runtime.certificates import FILES, issue_certificate, write_certificate
from sandmeshd.runtime.http.h2_connection import MOST_RESETS, STREAMS
from sandmeshd.runtime.http.h2_streams import ResponseReader, request_head
from sandmeshd.runtime.http.listener import Certificate, HttpAddresses
from sandmeshd.runtime.http.server import open_http

LARGE = 5_000_000


@dataclass
class Served:
    """An application at a listener, and what became of its requests."""

    url: str
    trust: ssl.SSLContext
    begun: asyncio.Event
    cancelled: asyncio.Event


class Application:
    """What is served, and what became of its requests."""

    def __init__(self) -> None:
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()

    def add(self, application: web.Application) -> None:
        """Add its routes."""
        for handler in (self.echo, self.stream, self.large, self.wait, self.nothing, self.broken):
            application.router.add_route("*", f"/{handler.__name__}", handler)

    async def echo(self, request: web.Request) -> web.Response:
        """Return the body whole, and what else came."""
        shown = {name: value for name, value in request.headers.items() if name.lower().startswith("x-")}
        seen = f"{request.method} {request.scheme} {request.host} {request.headers.get('Cookie', '')}"
        return web.Response(body=await request.read(), headers={"Seen": seen, **shown})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Return the body as it comes."""
        response = web.StreamResponse()
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response

    async def large(self, _: web.Request) -> web.Response:
        """Return more than a window."""
        return web.Response(body=bytes(LARGE))

    async def wait(self, _: web.Request) -> web.Response:
        """Wait for the end of the client's patience."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return web.Response()

    async def nothing(self, _: web.Request) -> web.Response:
        """Return no body."""
        return web.Response(status=204)

    async def broken(self, request: web.Request) -> web.StreamResponse:
        """Return half of a body."""
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        raise ConnectionResetError


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[Served]:
    """Serve an application with TLS, by both versions of HTTP."""
    paths = {kind: folder / name for kind, name in FILES.items()}
    write_certificate(issue_certificate(("localhost",), 2), paths)
    served, addresses = Application(), HttpAddresses(("127.0.0.1:0",), always_tls=True)
    async with open_http(addresses, [served.add], Certificate(paths["cert"], paths["key"])) as (url,):
        trust = ssl.create_default_context(cafile=str(paths["ca"]))
        yield Served(url.replace("127.0.0.1", "localhost"), trust, served.begun, served.cancelled)


@asynccontextmanager
async def client(served: Served) -> AsyncGenerator[httpx2.AsyncClient]:
    """Return a client that speaks HTTP/2 where it can."""
    async with httpx2.AsyncClient(http2=True, verify=served.trust, base_url=served.url, timeout=30) as made:
        yield made


async def pieces() -> AsyncIterator[bytes]:
    """Yield a body of no length that is known before."""
    for number in range(50):
        yield bytes([number]) * (LARGE // 50)


async def test_requests_and_responses_are_whole_with_and_without_a_length(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, client(served) as http:
        answer = await http.post("/echo?a=b", content=b"body", headers={"X-One": "1", "Cookie": "c=d"})
        assert (answer.http_version, answer.status_code, answer.content) == ("HTTP/2", 200, b"body")
        assert answer.headers["x-one"] == "1"
        assert answer.headers["seen"] == f"POST https {served.url.removeprefix('https://')} c=d"
        sent = hashlib.sha256(b"".join([piece async for piece in pieces()])).digest()
        for path in ("/echo", "/stream"):
            if path == "/stream":
                answer = await http.post(path, content=pieces())
                assert hashlib.sha256(answer.content).digest() == sent
        assert (await http.get("/large")).content == bytes(LARGE)
        assert (await http.head("/large")).headers["content-length"] == str(LARGE)
        empty = await http.get("/nothing")
        assert (empty.status_code, empty.content) == (204, b"")
        assert (await http.get("/missing")).status_code == 404


async def test_many_requests_share_a_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, client(served) as http:
        answers = await asyncio.gather(*(http.post("/echo", content=str(number)) for number in range(3 * STREAMS)))
        assert [answer.text for answer in answers] == [str(number) for number in range(3 * STREAMS)]
        assert {answer.http_version for answer in answers} == {"HTTP/2"}


async def test_a_client_of_http_1_is_served_as_ever(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as served,
        httpx2.AsyncClient(verify=served.trust, base_url=served.url) as http,
    ):
        answer = await http.post("/echo", content=b"body")
        assert (answer.http_version, answer.content) == ("HTTP/1.1", b"body")


async def test_a_response_that_breaks_off_is_no_whole_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, client(served) as http:
        with pytest.raises(httpx2.HTTPError):
            await http.get("/broken")
        assert (await http.get("/nothing")).status_code == 204


class Raw:
    """A client that may break rules."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.h2 = H2Connection()
        self.reader, self.writer = reader, writer

    def flush(self) -> None:
        """Send what there is to send."""
        self.writer.write(self.h2.data_to_send())

    def request(self, path: str, *, end: bool = True) -> int:
        """Begin a request."""
        number = self.h2.get_next_available_stream_id()
        pseudo = {":method": "POST", ":path": path, ":authority": "localhost", ":scheme": "https"}
        self.h2.send_headers(number, list(pseudo.items()), end_stream=end)
        self.flush()
        return number

    async def until(self, check: Callable[[Event], bool]) -> Event | None:
        """Return the event that a check looks for, None at the end of the connection."""
        async with asyncio.timeout(20):
            while data := await self.reader.read(65_536):
                for event in self.h2.receive_data(data):
                    if check(event):
                        return event
                self.flush()
        return None


@asynccontextmanager
async def raw(served: Served) -> AsyncGenerator[Raw]:
    """Connect such a client."""
    served.trust.set_alpn_protocols(["h2"])
    port = int(served.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("localhost", port, ssl=served.trust)
    made = Raw(reader, writer)
    made.h2.initiate_connection()
    made.flush()
    try:
        yield made
    finally:
        writer.close()


async def test_a_request_that_is_taken_back_is_not_worked_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, raw(served) as one:
        number = one.request("/wait")
        async with asyncio.timeout(20):
            await served.begun.wait()
            one.h2.reset_stream(number, ErrorCodes.CANCEL)
            one.flush()
            await served.cancelled.wait()


async def test_requests_end_with_their_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        async with raw(served) as one, asyncio.timeout(20):
            one.request("/wait")
            await served.begun.wait()
        async with asyncio.timeout(20):
            await served.cancelled.wait()


async def test_who_takes_back_requests_without_end_is_sent_away(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        async with raw(served) as one:
            for _ in range(MOST_RESETS + 1):
                one.h2.reset_stream(one.request("/echo", end=False), ErrorCodes.CANCEL)
            one.flush()
            ended = await one.until(lambda event: isinstance(event, ConnectionTerminated))
            assert ended is None or ended.error_code == ErrorCodes.ENHANCE_YOUR_CALM  # type: ignore[attr-defined]
        async with client(served) as http:
            assert (await http.get("/nothing")).status_code == 204


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, bytes(range(256)) * 10])
async def test_what_is_no_frame_ends_its_connection_alone(tmp_path: Path, sent: bytes) -> None:
    async with serving(tmp_path) as served, client(served) as http:
        assert (await http.get("/nothing")).status_code == 204
        async with raw(served) as one:
            one.writer.write(sent)
            await one.until(lambda event: False)
        assert (await http.get("/nothing")).status_code == 204


async def test_a_client_that_never_reads_holds_its_own_response_up_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, raw(served) as one, client(served) as http:
        one.h2.increment_flow_control_window(1 << 24)
        one.request("/large")
        await one.until(lambda event: isinstance(event, ResponseReceived))
        # The stream's window is full: another one of the same connection is answered all the same.
        second = one.request("/missing")
        found = await one.until(lambda event: isinstance(event, StreamEnded))
        assert isinstance(found, StreamEnded)
        assert found.stream_id == second
        assert (await http.get("/nothing")).status_code == 204


def test_a_header_with_the_end_of_a_line_is_refused() -> None:
    with pytest.raises(ValueError, match="end of a line"):
        request_head([(":method", "GET"), (":path", "/ HTTP/1.1\r\nx: y"), (":authority", "a")])
    head, chunked = request_head(
        [(":method", "GET"), (":path", "/"), (":authority", "a"), ("cookie", "b"), ("cookie", "c")]
    )
    assert (
        head == b"GET / HTTP/1.1\r\nhost: a\r\ncookie: b; c\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    )
    assert chunked


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_response_is_read_however_it_is_cut(step: int) -> None:
    text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n"
    text += b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    reader = ResponseReader(bodiless=False)
    body = b"".join(reader.feed(text[at : at + step]) for at in range(0, len(text), step))
    assert (body, reader.ended, reader.headers) == (b"abcde", True, [(":status", "200"), ("a", "b")])
