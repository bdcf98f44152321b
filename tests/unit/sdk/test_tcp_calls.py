"""The stream of all calls over TCP and TLS: beside a real gRPC server, and beside what is none."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from sandmesh._client import heartbeat
from sandmesh._client.addresses import DialTarget, parse
from sandmesh._client.heartbeat import WatchedStream
from sandmesh._client.tcp import tcp_calls
from sandmesh._client.tcp.tcp_calls import TcpCallStream, connect
from sandmesh._client.transport import Transport
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import MeshUnavailable, Unauthenticated
from sandmesh.shared.wire_errors import from_rpc_error
from sandmeshd.runtime.certificates import issue_certificate
from sandmeshd.runtime.rpc.interceptors import Context
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server
from sandmeshd.runtime.rpc.tls import ServerTls

TOKEN = (("authorization", "Bearer right"),)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def multiplex(requests: AsyncIterator[pb.MultiplexRequest], context: Context) -> None:
    """Answer each request with an event for each of its frames, which has the frame's data."""
    async for request in requests:
        for each in request.frames:
            output = pb.CallEvent(sequence=1, output=pb.Output(data=each.input.data))
            batch = pb.CallEventBatch(call_id=each.call_id, events=[output])
            await context.write(pb.MultiplexResponse(batch=batch).SerializeToString())
        if not request.frames:
            await context.write(b"")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a mesh on a machine that is busy, too."""
    monkeypatch.setattr(tcp_calls, "CONNECT_SECONDS", 30.0)


@asynccontextmanager
async def admitted(method: str, context: Context) -> AsyncGenerator[None]:
    if dict(context.invocation_metadata() or ()).get("authorization") != "Bearer right":
        raise Unauthenticated("who are you? Ein Schlüssel fehlt: 100 %", {"token": "missing"})
    yield


@asynccontextmanager
async def serving(tls: ServerTls | None = None, listen: str = "127.0.0.1:0") -> AsyncGenerator[DialTarget]:
    """Serve Multiplex by gRPC."""
    handler = grpc.stream_stream_rpc_method_handler(multiplex, pb.MultiplexRequest.FromString, bytes)
    methods = {"Multiplex": handler}
    generic = grpc.method_handlers_generic_handler("sandmesh.api.call.v1.CallService", methods)
    services = [ServiceRegistration("calls", lambda server: server.add_generic_rpc_handlers((generic,)))]
    async with asyncio.timeout(60), open_server([listen], services, [admitted], grace=0, tls=tls) as listening:
        yield parse(f"{'grpcs' if tls else 'grpc'}://{listening.addresses[0]}")


@asynccontextmanager
async def listening(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncGenerator[DialTarget]:
    """Serve whatever a test says."""
    async with asyncio.timeout(60):
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        try:
            yield parse(f"{'grpcs' if context else 'grpc'}://127.0.0.1:{port}")
        finally:
            server.close()


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a certificate for 127.0.0.1, its key, its authority's, and another authority's."""
    folder = tmp_path_factory.mktemp("tls")
    for name, text in issue_certificate(("127.0.0.1",), 1).items():
        (folder / f"{name}.pem").write_bytes(text)
    (folder / "other.pem").write_bytes(issue_certificate(("127.0.0.1",), 1)["ca"])
    return folder


def server_tls(issued: Path) -> ServerTls:
    return ServerTls(issued / "cert.pem", issued / "key.pem")


def trusting(target: DialTarget, issued: Path, name: str = "ca.pem") -> DialTarget:
    return replace(target, certificates=(issued / name).read_bytes())


def dialled(target: DialTarget, metadata: tuple[tuple[str, str], ...] = TOKEN) -> Awaitable[TcpCallStream | None]:
    return connect(target, metadata, idle, ignored)


def request(data: bytes, call_id: str = "one") -> pb.MultiplexRequest:
    return pb.MultiplexRequest(frames=[pb.CallFrame(call_id=call_id, input=pb.Input(data=data))])


async def data_of(stream: TcpCallStream) -> bytes:
    response = await stream.read()
    assert response is not None
    return bytes(response.batch.events[0].output.data)


async def echoes(stream: TcpCallStream | None) -> None:
    assert stream is not None
    await stream.write(request(b"hello"))
    assert await data_of(stream) == b"hello"
    await stream.done_writing()
    assert await stream.read() is None


async def test_calls_pass_by_tcp_and_end_with_the_stream() -> None:
    async with serving() as target:
        await echoes(await dialled(target))
        name = replace(target, name=target.name.replace("127.0.0.1", "localhost"))
        await echoes(await dialled(name))


async def test_calls_pass_by_tls_to_a_mesh_whose_certificate_is_known(issued: Path) -> None:
    async with serving(server_tls(issued)) as target:
        await echoes(await dialled(trusting(target, issued)))


async def test_much_passes_in_both_directions_and_fills_no_window_for_good(issued: Path) -> None:
    size, count = 3 << 20, 4
    async with serving() as plain, serving(server_tls(issued)) as secured:
        for target in (plain, trusting(secured, issued)):
            stream = await dialled(target)
            assert stream is not None

            async def write(stream: TcpCallStream) -> None:
                for number in range(count):
                    await stream.write(request(bytes([number]) * size))
                await stream.done_writing()

            writing = asyncio.create_task(write(stream))
            assert [await data_of(stream) == bytes([number]) * size for number in range(count)] == [True] * count
            await writing
            assert await stream.read() is None


async def test_a_client_that_is_refused_learns_why_as_by_grpc() -> None:
    async with serving() as target:
        stream = await dialled(target, (("authorization", "Bearer wrong"),))
        assert stream is not None
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        error = from_rpc_error(caught.value)
        assert isinstance(error, Unauthenticated)
        assert (error.message, error.facts["token"]) == ("who are you? Ein Schlüssel fehlt: 100 %", "missing")
        assert caught.value.details() == error.message


class Heard:
    """Keeps what a client sends, and answers the first of it."""

    def __init__(self, answer: bytes = b"") -> None:
        self.bytes = b""
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(self._answer)
            while data := await reader.read(1 << 16):
                self.bytes += data
        except OSError:
            pass
        finally:
            writer.close()


def context_of(issued: Path, protocols: tuple[str, ...] = ("h2",)) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued / "cert.pem", issued / "key.pem")
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


async def test_nothing_is_sent_to_who_shows_no_certificate_that_is_known(issued: Path) -> None:
    heard = Heard()
    async with listening(heard, context_of(issued)) as target:
        assert await dialled(trusting(target, issued, "other.pem")) is None
        assert await dialled(target) is None  # nor is its authority the system's
        other = replace(target, name=target.name.replace("127.0.0.1", "localhost"))
        assert await dialled(trusting(other, issued)) is None  # nor has it that name
    assert heard.bytes == b""


@pytest.mark.parametrize("protocols", [(), ("http/1.1",), ("sandmesh/1", "http/1.1")])
async def test_nothing_is_sent_by_tls_to_who_does_not_speak_http_2(issued: Path, protocols: tuple[str, ...]) -> None:
    heard = Heard()
    async with listening(heard, context_of(issued, protocols)) as target:
        assert await dialled(trusting(target, issued)) is None
    assert heard.bytes == b""


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00",
        b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        bytes(range(256)) * 100,
    ],
    ids=["nothing", "half a head", "half a frame", "HTTP/1", "ssh", "garbage"],
)
async def test_what_does_not_answer_as_a_mesh_is_left_to_grpc(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(tcp_calls, "CONNECT_SECONDS", 0.3)
    heard = Heard(answer)
    async with listening(heard) as target:
        assert await dialled(target) is None
    assert await dialled(target) is None


async def test_what_a_proxy_or_http_2_has_no_way_for_is_left_to_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as target:
        assert await dialled(target, (("authorization", "Bearer a\nb"),)) is None
        assert await dialled(target, (("authorization", "Bearer " + "a" * 20_000),)) is None
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
        assert await dialled(replace(target, proxied=True)) is None
        await echoes(await dialled(target))


async def test_a_mesh_that_falls_silent_while_there_are_calls_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(heartbeat, "DEAD_SECONDS", 0.5)
    told = asyncio.Event()
    settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    async with listening(Heard(settings)) as target:
        stream = await connect(target, (), lambda: True, told.set)
        assert stream is not None
        with pytest.raises(MeshUnavailable, match="silent"):
            await stream.read()
    assert told.is_set()


async def test_a_mesh_that_answers_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.05)
    answers = asyncio.Queue[pb.MultiplexResponse]()
    async with serving() as target:
        stream = await connect(target, TOKEN, lambda: True, lambda: None)
        assert stream is not None
        stream.subscribe(answers.put_nowait)
        for _ in range(3):  # each answers a beat
            await answers.get()
        stream.cancel()
        assert await stream.read() is None


async def test_an_end_in_the_middle_of_a_message_is_the_streams_end() -> None:
    first = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x09\x01\x04\x00\x00\x00\x01\x88"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(first)
        writer.close()

    async with listening(serve) as target:
        stream = await dialled(target)
        assert stream is None or await stream.read() is None


async def test_calls_take_it_and_bulk_takes_grpcs_own_connection_and_calls_too_where_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as target:
        transport = Transport(target, TOKEN)
        found = [await transport.open_stream(idle, ignored), await transport.open_bulk_stream(idle, ignored)]
        monkeypatch.setattr(tcp_calls, "CONNECT_SECONDS", -1.0)
        found.append(await transport.open_stream(idle, ignored))
        assert [type(one) for one in found] == [TcpCallStream, WatchedStream, WatchedStream]
        for stream in found:
            await stream.write(request(b"x"))
            assert isinstance(await stream.read(), pb.MultiplexResponse)
            stream.cancel()
        await transport.close_channel()


def idle() -> bool:
    return False


def ignored() -> None:
    return
