"""Links to a real agent in WebSockets, through what stands before it in a cloud."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.errors import SandboxLost, SandmeshError
from sandmesh.shared import frames
from sandmesh.shared.websocket import LINK_SUBPROTOCOL
from sandmeshd.agentlink import addresses
from sandmeshd.agentlink.addresses import AgentAddress, read_address, websocket_endpoint
from sandmeshd.agentlink.calls import AgentCall
from sandmeshd.agentlink.connection import open_link
from sandmeshd.agentlink.link import AgentLink
from sandmeshd.agentlink.websocket import open_websocket
from sandmeshd.auth.principal import ADMIN
from sandmeshd.gateway.calls.relay import Relay
from sandmeshd.gateway.routes.routes import Routes
from tests.unit.agent.client import SANDBOX, TOKEN
from tests.unit.agent.sandbox import Sandbox, prepare_ground, running

from .fronts import Front, front

LINES = 400


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    with running(asyncio.run(prepare_ground())) as started:
        yield started


@pytest.fixture
async def cloud(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    async with front(tmp_path, one=sandbox.socket) as made:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        addresses.system_authorities.cache_clear()
        yield made
    addresses.system_authorities.cache_clear()


def at(endpoint: str, token: str = TOKEN) -> driver_pb2.RuntimeSandbox:
    return driver_pb2.RuntimeSandbox(sandbox_id=SANDBOX, endpoint=endpoint, agent_token=token)


async def run(endpoint: str, command: str, **envelope: Any) -> bytes:
    async with open_link(at(endpoint), 60) as link:
        call = AgentCall(link)
        call.start(SANDBOX, "run_shell_command", {"command": command}, **envelope)
        events = await call.wait()
        return b"".join(event.output.data for event in events if event.HasField("output"))


async def test_a_link_carries_calls_and_its_upgrade_names_the_sandbox(cloud: Front) -> None:
    assert await run(cloud.endpoint("one"), "echo $((6*7))") == b"42\n"
    request, *headers = cloud.heads[0].decode().split("\r\n")
    assert request == "GET /agent/x?stage=a+b HTTP/1.1"
    assert "x-session: one" in headers
    assert f"Sec-WebSocket-Protocol: {LINK_SUBPROTOCOL}" in headers
    assert f"Host: localhost:{cloud.port}" in headers
    assert TOKEN.encode() not in cloud.heads[0]


async def test_messages_larger_than_one_of_a_websocket_pass_both_ways(cloud: Front) -> None:
    async with open_link(at(cloud.endpoint("one")), 60) as link:
        call = AgentCall(link)
        code = f"print(len({'x' * 1_900_000!r}))\nprint('y' * 5_000_000)"
        call.start(SANDBOX, "run_ipython_cell", {"code": code}, window_bytes=16 << 20)
        events = await call.wait()
    output = b"".join(event.output.data for event in events if event.HasField("output"))
    assert output == b"1900000\n" + b"y" * 5_000_000 + b"\n"


class Follower:
    """Follows a call through its relay, as a gateway's client does."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.over: asyncio.Future[SandmeshError | None] = asyncio.get_running_loop().create_future()

    def deliver(self, call: Relay, response: bytes, last_sequence: int) -> None:
        for event in pb.MultiplexResponse.FromString(response).batch.events:
            self.output += event.output.data
        call.acknowledge(last_sequence)

    def ended(self, call: Relay, error: SandmeshError | None) -> None:
        self.over.set_result(error)


class Allocator:
    """Resolves one sandbox."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    async def ResolveSandbox(  # noqa: N802 - as the proto names it
        self, request: sandbox_pb2.ResolveSandboxRequest, timeout: float
    ) -> sandbox_pb2.ResolveSandboxResponse:
        found = sandbox_pb2.Sandbox(sandbox_id=request.sandbox_id)
        return sandbox_pb2.ResolveSandboxResponse(sandbox=found, endpoint=self.endpoint, agent_token=TOKEN)


async def test_calls_go_on_over_connections_that_are_cut_each_second(cloud: Front) -> None:
    cloud.cut_seconds = 1.0
    stub = cast("sandbox_pb2_grpc.SandboxServiceAsyncStub", Allocator(cloud.endpoint("one")))
    routes = Routes(stub, 10.0)
    followers = [Follower() for _ in range(3)]
    try:
        async with asyncio.timeout(90):
            for number, follower in enumerate(followers):
                code = f"for i in $(seq {LINES}); do echo line $i of {number}; sleep 0.01; done"
                arguments = json.dumps({"command": code}).encode()
                start = pb.CallStart(sandbox_id=SANDBOX, tool="run_shell_command", arguments=arguments)
                Relay(routes.of(ADMIN), follower, f"cut-{number}").open(pb.CallFrame(start=start), 5.0)
            assert await asyncio.gather(*(one.over for one in followers)) == [None] * len(followers)
    finally:
        routes.close()
    for number, follower in enumerate(followers):
        assert bytes(follower.output) == b"".join(b"line %d of %d\n" % (i + 1, number) for i in range(LINES))
    assert len(cloud.heads) > 3


async def test_a_proxy_that_strips_upgrades_is_named_as_the_cause(cloud: Front) -> None:
    cloud.strips_upgrades = True
    with pytest.raises(SandboxLost) as lost:
        await run(cloud.endpoint("one"), "true")
    assert "does a proxy in between pass on WebSockets?" in lost.value.facts["detail"]
    assert "200 OK" in lost.value.facts["detail"]


async def test_a_gateway_that_finds_no_sandbox_is_quoted(cloud: Front) -> None:
    with pytest.raises(SandboxLost) as lost:
        await run(cloud.endpoint("another"), "true")
    assert "502 Bad Gateway" in lost.value.facts["detail"]


async def test_a_certificate_that_does_not_fit_ends_the_connection_before_a_word(
    cloud: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SandboxLost) as of_another_host:
        await run(cloud.endpoint("one", "127.0.0.1"), "true")
    monkeypatch.delenv("SSL_CERT_FILE")
    addresses.system_authorities.cache_clear()
    with pytest.raises(SandboxLost) as of_a_stranger:
        await run(cloud.endpoint("one"), "true")
    assert "IP address mismatch" in of_another_host.value.facts["detail"]
    assert "CERTIFICATE_VERIFY_FAILED" in of_a_stranger.value.facts["detail"]
    assert cloud.heads == []


async def test_pings_keep_a_quiet_link_and_find_one_that_is_dead(cloud: Front) -> None:
    link = await open_websocket(read_address(cloud.endpoint("one")), AgentLink(SANDBOX), 0.25)
    async with asyncio.timeout(30):
        link.send_hello(TOKEN)
        await link.greeted(20)
        with pytest.raises(TimeoutError):
            # Ten pings and their answers: a link without them would be given up after two.
            await asyncio.wait_for(asyncio.shield(link.closed), 2.5)
        cloud.is_deaf = True
        await link.closed
    assert isinstance(link.error, SandboxLost)


async def test_a_wrong_token_gets_no_answer(cloud: Front) -> None:
    with pytest.raises(SandboxLost):
        async with open_link(at(cloud.endpoint("one"), "wrong"), 20):
            pass
    assert await run(cloud.endpoint("one"), "echo here") == b"here\n"


@pytest.mark.parametrize(
    ("request_text", "response"),
    [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK"),
        ("GET /other HTTP/1.1\r\nHost: a\r\n\r\n", "404 Not Found"),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", "404 Not Found"),
        ("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "400 Bad Request"),
        ("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", ""),
        ("\x16\x03\x01\x02\x00\x01\x00", ""),
        ("GET /" + "a" * 9000, ""),
    ],
)  # fmt: skip
async def test_a_health_check_is_answered_with_nothing_in_it(
    sandbox: Sandbox, request_text: str, response: str
) -> None:
    reader, writer = await asyncio.open_unix_connection(sandbox.socket)
    writer.write(request_text.encode("latin-1"))
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    expected = f"HTTP/1.1 {response}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" if response else ""
    assert answer.decode() == expected


async def test_a_request_that_comes_byte_by_byte_is_read_whole(sandbox: Sandbox) -> None:
    reader, writer = await asyncio.open_unix_connection(sandbox.socket)
    for byte in b"GET / HTTP/1.1\r\n\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
    writer.close()


async def test_another_implementation_of_websockets_speaks_with_the_agent(sandbox: Sandbox) -> None:
    hello = agent_pb2.GatewayHello(protocol=frames.LINK_PROTOCOL, sandbox_id=SANDBOX, agent_token=TOKEN)
    frame = frames.pack(agent_pb2.ToAgent(hello=hello).SerializeToString())
    connector = aiohttp.UnixConnector(sandbox.socket)
    async with (
        asyncio.timeout(20),
        aiohttp.ClientSession(connector=connector) as session,
        session.ws_connect("http://agent/any", protocols=("other", LINK_SUBPROTOCOL)) as websocket,
    ):
        assert websocket.protocol == LINK_SUBPROTOCOL
        for piece in (frame[:1], frame[1:3], frame[3:]):
            await websocket.send_bytes(piece)
        answer = await websocket.receive_bytes()
        assert agent_pb2.FromAgent.FromString(answer[4:]).hello.sandbox_id == SANDBOX
        await websocket.send_str("text is not spoken")
        closed = await websocket.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1003)


def test_an_address_names_the_request_and_the_header() -> None:
    address = read_address("wss://cloud.example/a/b?x=1&affinity=x-session%3As%3A1")
    assert address == AgentAddress(host="cloud.example", port=443, target="/a/b?x=1", affinity=("x-session", "s:1"))
    assert read_address("wss://cloud.example").target == "/"
    assert websocket_endpoint("https://a.example/p?q=1", "x-session", "s 1") == (
        "wss://a.example/p?q=1&affinity=x-session%3As+1"
    )
    assert read_address(websocket_endpoint("https://a.example:8443", "h", "v")) == AgentAddress(
        host="a.example", port=8443, target="/", affinity=("h", "v")
    )


@pytest.mark.parametrize("affinity", ["none", "a b:c", "a:", "a:b%0d%0aInjected: c", ":b", "a:é"])
def test_an_affinity_that_is_not_a_header_is_refused(affinity: str) -> None:
    with pytest.raises(ConnectionError):
        read_address(f"wss://cloud.example/?affinity={affinity}")
