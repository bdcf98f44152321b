"""Listeners that strangers connect to and say nothing."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp import web
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sandmeshd.runtime.http import Certificate, HttpAddresses, door
from sandmeshd.runtime.http.metrics import metrics_page
from sandmeshd.runtime.http.server import open_http
from sandmeshd.runtime.rpc import server as rpc
from sandmeshd.runtime.rpc.server import open_server
from sandmeshd.runtime.telemetry.metrics import Observed

LOOPBACK = ("127.0.0.1:0",)
ALLOWED = 64
"""With the limit of descriptors that tests here have."""


@pytest.fixture
def few_descriptors() -> Generator[None]:
    """Leave this process 512 descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def serving(certificate: Certificate | None = None) -> AsyncGenerator[tuple[str, int]]:
    addresses = HttpAddresses(LOOPBACK, always_tls=True)
    async with open_http(addresses, [metrics_page(Observed())], certificate) as (url,):
        host, _, port = url.rpartition("/")[2].rpartition(":")
        yield host, int(port)


def silent(stack: ExitStack, address: tuple[str, int], count: int) -> list[socket.socket]:
    """Connect so often, and say nothing."""
    return [stack.enter_context(socket.create_connection(address)) for _ in range(count)]


async def ended(connection: socket.socket) -> None:
    """Return when the other side has closed a connection."""
    connection.setblocking(False)
    with suppress(ConnectionResetError):
        while await asyncio.get_running_loop().sock_recv(connection, 4096):
            pass


async def get(address: tuple[str, int], path: str, **headers: str) -> int:
    url = f"http://{address[0]}:{address[1]}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status


@pytest.mark.usefixtures("few_descriptors")
async def test_http_accepts_so_many_connections_and_then_others_again() -> None:
    async with serving() as address:
        with ExitStack() as stack:
            connections = silent(stack, address, ALLOWED + 1)
            await asyncio.wait_for(ended(connections[-1]), 30)
            # Not for want of a head, as all would: the first ones are open.
            connections[0].setblocking(False)
            with pytest.raises(BlockingIOError):
                connections[0].recv(1)
            connections[0].close()
            while True:
                with suppress(aiohttp.ClientError):
                    assert await get(address, "/healthz") == 200
                    break


async def test_a_connection_without_a_whole_head_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEAD_SECONDS", 0.2)
    async with serving() as address:
        with ExitStack() as stack:
            silent_one, slow = silent(stack, address, 2)
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localh")
            await asyncio.wait_for(asyncio.gather(ended(silent_one), ended(slow)), 30)


async def test_a_connection_that_has_brought_a_request_stays_past_that_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEAD_SECONDS", 0.2)
    async with serving() as address:
        with ExitStack() as stack:
            first, other = silent(stack, address, 2)
            first.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(ended(other), 30)
            first.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := await asyncio.to_thread(first.recv, 4096):
                answer += part
        assert answer.count(b"HTTP/1.1 200 OK") == 2


async def test_a_connection_that_is_idle_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "IDLE_SECONDS", 0.2)
    async with serving() as address:
        with ExitStack() as stack:
            (connection,) = silent(stack, address, 1)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(ended(connection), 30)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate that only a test trusts, and its key."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run([*made, "-keyout", key, "-out", chain, "-subj", "/CN=localhost"], check=True, capture_output=True)
    return chain, key


async def test_a_handshake_that_does_not_go_on_ends_and_is_not_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_SECONDS", 0.2)
    chain, key = make_certificate(tmp_path)
    async with serving(Certificate(chain, key)) as (host, port):
        with ExitStack() as stack:
            quiet, plain = silent(stack, (host, port), 2)
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(asyncio.gather(ended(quiet), ended(plain)), 30)
        trusting = ssl.create_default_context(cafile=str(chain))
        trusting.check_hostname = False
        url = f"https://{host}:{port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=trusting) as response:
            assert response.status == 200
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("localhost.evil.example", 403),
        ("10.0.0.1", 403),
    ],
)
async def test_metrics_are_not_for_pages_of_others(host: str, status: int) -> None:
    async with serving() as address:
        assert await get(address, "/metrics", Host=host) == status


async def test_metrics_are_not_for_peers_without_an_address_of_this_machine(tmp_path: Path) -> None:
    application = web.Application()
    metrics_page(Observed())(application)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        # Its peers have no address: no more is known of them than of those on a network.
        await web.UnixSite(runner, str(tmp_path / "s")).start()
        connector = aiohttp.UnixConnector(str(tmp_path / "s"))
        async with aiohttp.ClientSession(connector=connector) as client, client.get("http://localhost/metrics") as page:
            assert page.status == 403
            assert "for this machine" in await page.text()
    finally:
        await runner.cleanup()


async def check(channel: grpc.aio.Channel) -> None:
    """Check that a gRPC server serves a channel."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)


@pytest.mark.usefixtures("few_descriptors")
async def test_grpc_accepts_so_many_connections_at_tcp_and_the_unix_socket_is_apart(tmp_path: Path) -> None:
    unix = f"unix://{tmp_path}/s"
    async with open_server([unix, *LOOPBACK], []) as listening:
        assert listening.addresses[0] == unix
        host, _, port = listening.addresses[1].rpartition(":")
        async with grpc.aio.insecure_channel(listening.addresses[1]) as before:
            await check(before)
            with ExitStack() as stack:
                connections = silent(stack, (host, int(port)), ALLOWED * 2)
                await asyncio.wait_for(ended(connections[-1]), 8)
                await check(before)
                async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as local:
                    await check(local)


def own_address() -> str:
    """Return an address of this machine that is not loopback's, empty where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


needs_own_address = pytest.mark.skipif(not own_address(), reason="this machine has a loopback only")


def open_ones(connections: list[socket.socket]) -> int:
    """Count the connections that the other side has not closed."""
    count = 0
    for connection in connections:
        connection.setblocking(False)
        try:
            count += bool(connection.recv(1 << 16))
        except BlockingIOError:
            count += 1
        except ConnectionResetError:
            pass
    return count


async def settle(connections: list[socket.socket], count: int) -> None:
    """Wait until so many connections are open."""
    async with asyncio.timeout(8):  # before the handshake's limit ends the others, too
        while open_ones(connections) != count:  # noqa: ASYNC110 - the other side's ends are no event of this loop
            await asyncio.sleep(0.05)


@needs_own_address
@pytest.mark.usefixtures("few_descriptors")
async def test_one_peer_has_a_quarter_of_a_grpc_address_and_its_oldest_connections_stay() -> None:
    async with open_server([f"{own_address()}:0"], []) as listening:
        host, _, port = listening.addresses[0].rpartition(":")
        async with grpc.aio.insecure_channel(listening.addresses[0]) as before:
            await check(before)
            with ExitStack() as stack:
                connections = silent(stack, (host, int(port)), ALLOWED // 2)
                await settle(connections, ALLOWED // 4 - 1)
                await check(before)
            async with grpc.aio.insecure_channel(listening.addresses[0]) as after:
                await check(after)


@needs_own_address
@pytest.mark.usefixtures("few_descriptors")
async def test_one_peer_has_a_quarter_of_an_http_address() -> None:
    addresses = HttpAddresses((f"{own_address()}:0",))
    async with open_http(addresses, [metrics_page(Observed())], None) as (url,):
        host, _, port = url.rpartition("/")[2].rpartition(":")
        with ExitStack() as stack:
            await settle(silent(stack, (host, int(port)), ALLOWED // 2), ALLOWED // 4)


async def test_grpc_ends_connections_that_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "IDLE_SECONDS", 1)
    async with open_server(LOOPBACK, []) as listening:
        channel = grpc.aio.insecure_channel(listening.addresses[0])
        async with channel, asyncio.timeout(30):
            await check(channel)
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)


async def test_grpc_ends_connections_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "HANDSHAKE_SECONDS", 1)
    async with open_server(LOOPBACK, []) as listening:
        host, _, port = listening.addresses[0].rpartition(":")
        with ExitStack() as stack:
            (connection,) = silent(stack, (host, int(port)), 1)
            await asyncio.wait_for(ended(connection), 30)
