"""What sandboxes reach, where the driver says that it grants networks; one that does not must refuse them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import InvalidArgument, SandboxNotFound
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.assertions import expect, expect_equal, expect_error
from sandmeshd.drivers.conformance.inside import evaluate
from sandmeshd.drivers.conformance.sandbox_end import watched
from sandmeshd.drivers.conformance.subject import Subject

PATIENCE_SECONDS = 30.0
NONE, PUBLIC, HOSTS = (
    sandbox_pb2.NETWORK_MODE_NONE,
    sandbox_pb2.NETWORK_MODE_PUBLIC,
    sandbox_pb2.NETWORK_MODE_HOSTS,
)

ASK = """
import http.client, json, os
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTP_PROXY"])
answers = []
for target in TARGETS:
    link = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=20)
    link.request("GET", f"http://{target}/")
    answer = link.getresponse()
    answers.append([answer.status, answer.read().decode()])
    link.close()
print(json.dumps(answers))
"""

HOLD = """
import json, os, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTP_PROXY"])
link = socket.create_connection((proxy.hostname, proxy.port), 20)
link.sendall(b"CONNECT TARGET HTTP/1.0\\r\\n\\r\\n")
try:
    while link.recv(4096):
        pass
    ended = True
except ConnectionResetError:
    ended = True
except TimeoutError:
    ended = False
print(json.dumps(ended))
"""

BARE = """
import json, os
rows = [line.split() for name in ("tcp", "tcp6", "udp", "udp6") for line in list(open(f"/proc/net/{name}"))[1:]]
# Those of agent and engine are no way for user code; a link that was accepted has a peer and is one of them.
rows = [row for row in rows if row[7] == str(os.getuid()) and set(row[2].split(":")[0]) == {"0"}]
print(json.dumps([[name for name in os.environ if "proxy" in name.lower()], [row[1] for row in rows]]))
"""


@asynccontextmanager
async def _holding_host(connected: asyncio.Event) -> AsyncGenerator[str]:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


@asynccontextmanager
async def _host() -> AsyncGenerator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def _grants(driver: Driver, mode: sandbox_pb2.NetworkMode.ValueType) -> bool:
    return mode in (await driver.get_info(pb.GetInfoRequest())).capabilities.network_modes


def _grant(mode: sandbox_pb2.NetworkMode.ValueType, *hosts: str) -> sandbox_pb2.NetworkGrant:
    return sandbox_pb2.NetworkGrant(mode=mode, hosts=hosts)


async def a_named_host_is_reached_and_no_other(subject: Subject) -> None:
    """By its address and port, also where that is the node's own; the refusal of another says how to grant it."""
    async with subject.open() as driver, _host() as there:
        if not await _grants(driver, HOSTS):
            return
        async with subject.sandbox(driver, network=_grant(HOSTS, there)) as sandbox:
            answers = await evaluate(sandbox, ASK.replace("TARGETS", f'["{there}", "127.0.0.2:80", "example.invalid"]'))
    expect_equal(answers[0], [200, "hello"], "the answer of the named host")
    expect_equal([status for status, _ in answers[1:]], [403, 403], "the answers of others")
    expect("example.invalid" in answers[2][1] and "network=" in answers[2][1], f"the refusal says {answers[2][1]!r}")


async def a_changed_grant_holds_at_once(subject: Subject) -> None:
    """For new connections, and for one that is open to a host that is no longer allowed: it ends."""
    connected = asyncio.Event()
    async with subject.open() as driver, _holding_host(connected) as first, _host() as second:
        if not await _grants(driver, HOSTS):
            return
        async with subject.sandbox(driver, network=_grant(HOSTS, first)) as sandbox:
            ask = ASK.replace("TARGETS", f'["{second}"]')
            expect_equal((await evaluate(sandbox, ask))[0][0], 403, "the answer of what is not granted yet")
            holding = asyncio.create_task(evaluate(sandbox, HOLD.replace("TARGET", first)))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await connected.wait()
                request = pb.ChangeNetworkRequest(sandbox_id=sandbox.sandbox_id, grant=_grant(HOSTS, second))
                await driver.change_network(request)
                expect(await holding, "a connection to what is no longer granted stays open")
            answers = await evaluate(sandbox, ASK.replace("TARGETS", f'["{second}", "{first}"]'))
    expect_equal([status for status, _ in answers], [200, 403], "the answers after the change")


async def public_is_no_way_to_the_node(subject: Subject) -> None:
    """Nor to private, link-local or metadata addresses, on whatever port."""
    async with subject.open() as driver, _host() as there:
        if not await _grants(driver, PUBLIC):
            return
        async with subject.sandbox(driver, network=_grant(PUBLIC)) as sandbox:
            targets = [there, "127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1", "[::ffff:127.0.0.1]", "localhost"]
            answers = await evaluate(sandbox, ASK.replace("TARGETS", repr(targets).replace("'", '"')))
    expect_equal([status for status, _ in answers], [403] * len(targets), "the answers")


async def a_sandbox_without_a_grant_has_no_way_out(subject: Subject) -> None:
    """No variable names a proxy, and nothing listens inside."""
    async with subject.open() as driver:
        if not await _grants(driver, NONE):
            return
        async with subject.sandbox(driver, network=_grant(NONE)) as sandbox:
            variables, sockets = await evaluate(sandbox, BARE)
    expect(not variables and not sockets, f"there are variables {variables} and sockets {sockets}")


async def refusals_are_told_to_who_watches(subject: Subject) -> None:
    """Each with its sandbox, host, port, reason and count."""
    async with subject.open() as driver:
        if not await _grants(driver, HOSTS):
            return
        async with subject.sandbox(driver, network=_grant(HOSTS, "example.org")) as sandbox:
            hearing = asyncio.create_task(_first_refusal(driver, subject.mesh_id))
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not hearing.done():
                        await evaluate(sandbox, ASK.replace("TARGETS", '["example.invalid:81"]'))
                    refusal = hearing.result()
            finally:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)
    expect_equal((refusal.sandbox_id, refusal.host), (sandbox.sandbox_id, "example.invalid"), "what was refused")
    expect(refusal.port == 81 and refusal.count >= 1 and bool(refusal.reason), f"it lacks something: {refusal}")


async def _first_refusal(driver: Driver, mesh_id: str) -> pb.EgressRefusal:
    async with watched(driver, mesh_id) as changes:
        async for change in changes:
            if change.HasField("egress_refusal"):
                return change.egress_refusal
    raise AssertionError("the watch ended")


async def a_grant_of_what_is_no_host_is_refused(subject: Subject) -> None:
    """INVALID_ARGUMENT, and nothing is made."""
    async with subject.open() as driver:
        if not await _grants(driver, HOSTS):
            return
        for bad in ("https://example.org", "*", "127.1", "a b", "example.org:0"):
            request = subject.request(network=_grant(HOSTS, bad))
            await expect_error(InvalidArgument, driver.create_sandbox(request))
            query = pb.InspectSandboxRequest(sandbox_id=request.sandbox_id)
            await expect_error(SandboxNotFound, driver.inspect_sandbox(query))
