"""What the proxy makes of what programs send, over real connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from sandmesh.api.agent.v1.agent_pb2 import EgressFrame
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.drivers.egress.grants import policy_of
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget
from sandmeshd.drivers.egress.reserved import Reserved
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import WINDOW_BYTES, Overrun, ProxyStream
from sandmeshd.drivers.egress.upstream.dialer import Dialer, TargetUnreachable, Upstream
from sandmeshd.drivers.egress.upstream.outlets import ThroughProxy
from tests.unit.drivers.egress.harness import Names, Program, Redirected, host, serving


def status(answer: bytes) -> int:
    """Give an answer's status."""
    return int(answer.split(b" ", 2)[1])


async def test_a_request_reaches_its_host_and_the_answer_comes_back() -> None:
    async with host() as there:
        program = Program(Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{there.port}"])
        answer = await program.ask(f"GET http://a.test:{there.port}/x?y HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
    assert status(answer) == 200
    assert answer.endswith(b"hello")
    assert there.got[0].startswith(b"GET /x?y HTTP/1.1\r\n")
    assert not program.refusals


async def test_a_connect_carries_bytes_both_ways_also_those_sent_with_it() -> None:
    async with host(b"\x00answer") as there:
        program = Program(Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{there.port}"])
        answer = await program.ask(f"CONNECT a.test:{there.port} HTTP/1.0\r\n\r\n".encode() + b"\xffearly\r\n\r\n")
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n\x00answer"
    assert there.got == [b"\xffearly\r\n\r\n"]


async def test_a_refusal_names_the_host_and_how_to_grant_it() -> None:
    program = Program(Names(), grant=["a.test"])
    answer = await program.ask(b"CONNECT b.test:443 HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 b.test is not among the hosts that this sandbox may reach\r\n")
    assert b'network=["b.test"]' in answer
    assert [(refusal.host, refusal.port) for refusal in program.refusals] == [("b.test", 443)]


async def test_the_address_that_was_checked_is_the_one_connected_to() -> None:
    async with host() as there:
        names = Names(a_test=[["1.1.1.1"], ["127.0.0.1"]])
        outlet = Redirected(there.port)
        program = Program(names, outlet, public=True)
        answer = await program.ask(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
    assert status(answer) == 200
    assert (names.lookups, outlet.opened) == (["a.test"], [("1.1.1.1", 80)])


async def test_a_name_that_changed_to_a_private_address_is_refused_the_next_time() -> None:
    async with host() as there:
        names, outlet = Names(a_test=[["1.1.1.1"], ["169.254.169.254"]]), Redirected(there.port)
        statuses = [
            status(await Program(names, outlet, public=True).ask(b"GET http://a.test/ HTTP/1.0\r\n\r\n")) for _ in "12"
        ]
    assert statuses == [200, 403]
    assert outlet.opened == [("1.1.1.1", 80)]


@pytest.mark.parametrize(
    "target",
    [
        *("127.0.0.1:80", "[::1]:443", "169.254.169.254:80", "[::ffff:127.0.0.1]:80", "10.0.0.1:443", "0.0.0.0:80"),
        *("[64:ff9b::7f00:1]:80", "[2002:7f00:1::]:80", "localhost:80", "0x7f.1:80", "2130706433:80", "127.1:80"),
        *("1.1.1.1:22", "1.1.1.1:53", "meta.test:80"),
    ],
)
async def test_public_is_no_way_to_what_is_not_public(target: str) -> None:
    names = Names(localhost=[["127.0.0.1", "::1"]], meta_test=[["169.254.169.254"]])
    outlet = Redirected(1)
    program = Program(names, outlet, public=True)
    assert status(await program.ask(f"CONNECT {target} HTTP/1.0\r\n\r\n".encode())) == 403
    assert len(program.refusals) == 1
    assert outlet.opened == []


async def test_a_domain_does_not_name_private_hosts_below_it() -> None:
    program = Program(Names(a_test=[["10.0.0.5"]]), Redirected(1), grant=["*.test"])
    assert status(await program.ask(b"CONNECT a.test:443 HTTP/1.0\r\n\r\n")) == 403


async def test_the_host_header_is_the_targets_whatever_was_written() -> None:
    async with host() as there:
        program = Program(Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{there.port}"])
        head = f"GET http://a.test:{there.port}/ HTTP/1.1\r\nHost: b.test\r\nConnection: X-Gone\r\nX-Gone: 1\r\n"
        await program.ask(head.encode() + b"Proxy-Authorization: Basic x\r\nUpgrade: websocket\r\nX-Kept: 2\r\n\r\n")
    sent = there.got[0].lower().split(b"\r\n")
    assert [line for line in sent if line.startswith(b"host:")] == [b"host: a.test:%d" % there.port]
    assert b"x-kept: 2" in sent
    assert not [line for line in sent if line.startswith((b"x-gone", b"proxy-", b"upgrade"))]


async def test_a_second_request_on_the_connection_goes_nowhere() -> None:
    async with host() as there:
        program = Program(Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{there.port}"])
        first = f"GET http://a.test:{there.port}/1 HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
        answer = await program.ask(first + b"GET http://b.test/2 HTTP/1.1\r\nHost: b.test\r\n\r\n")
    assert status(answer) == 200
    assert len(there.got) == 1
    assert b"/2" not in there.got[0]


async def test_a_body_of_two_lengths_leaves_with_the_one_that_was_read() -> None:
    async with host() as there:
        program = Program(Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{there.port}"])
        head = f"POST http://a.test:{there.port}/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n".encode()
        body = b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"
        answer = await program.ask(head + body)
    assert status(answer) in {200, 400}
    assert all(b"content-length" not in got.lower() and b"smuggled" not in got for got in there.got)


@pytest.mark.parametrize(
    "garbage",
    [
        *(b"\x16\x03\x01\x02\x00", b"\r\n\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"CONNECT\r\n\r\n", b"\x05\x01\x00"),
        *(
            b"CONNECT a.test:80 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            b"GET http://a.test:80/ HTTP/1.1\nHost: x\n\n",
        ),
        *(b"GET http://a.test/\r\nX: y\r\n\r\n", b"CONNECT a.test:80 HTTP/1.1\r\n X: folded\r\n\r\n"),
        *(b"GET http://a.test/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        b"GET http://a.test/\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
async def test_garbage_is_answered_or_dropped_and_reaches_nobody(garbage: bytes) -> None:
    outlet = Redirected(1)
    program = Program(Names(a_test=[["10.7.7.7"]]), outlet, grant=["b.test"])
    answer = await program.ask(garbage)
    assert outlet.opened == []
    assert not answer or 400 <= status(answer) < 500


async def test_a_head_without_end_is_cut_off() -> None:
    program = Program(Names(), grant=["a.test"])
    answer = await program.ask(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n" + b"X-Flood: 1\r\n" * 5000)
    assert status(answer) == 431


async def test_a_head_that_comes_too_slowly_is_given_up() -> None:
    program = Program(Names(), grant=["a.test"], settings=EgressSettings(head_seconds=0.05))
    program.write(b"GET http://a.test/ HT")
    assert status(await program.serve()) == 408


async def test_a_tunnel_on_which_nothing_moves_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(silent) as port:
        program = Program(
            Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{port}"], settings=EgressSettings(idle_seconds=0.05)
        )
        program.write(f"CONNECT a.test:{port} HTTP/1.0\r\n\r\n".encode())
        await program.serve()
    assert program.reset


async def test_a_host_that_does_not_answer_is_no_refusal() -> None:
    program = Program(Names(), grant=["a.test"])
    answer = await program.ask(b"CONNECT a.test:443 HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 a.test:443 cannot be reached: no such name")
    assert not program.refusals


async def test_a_redirect_is_the_programs_to_follow_and_is_checked_like_any_other() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with host(moved) as there:
        program = Program(Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{there.port}"])
        answer = await program.ask(f"GET http://a.test:{there.port}/ HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
        assert status(answer) == 302
        again = Program(Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{there.port}"])
        assert status(await again.ask(b"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\n\r\n")) == 403


async def test_an_answer_of_any_length_comes_in_the_programs_own_time() -> None:
    body = b"x" * (3 * WINDOW_BYTES)
    async with host(b"HTTP/1.0 200 OK\r\n\r\n" + body) as there:
        program = Program(Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{there.port}"])
        answer = await program.ask(f"GET http://a.test:{there.port}/ HTTP/1.0\r\n\r\n".encode())
    assert answer.endswith(body)


async def test_an_agent_that_sends_more_than_it_may_is_found_out() -> None:
    async def send(_: EgressFrame) -> None:
        return

    stream = ProxyStream(1, send)
    stream.take(EgressFrame(data=b"x" * WINDOW_BYTES))
    with pytest.raises(Overrun):
        stream.take(EgressFrame(data=b"x"))


async def test_a_program_that_does_not_read_holds_up_its_own_connection() -> None:
    sent: list[int] = []

    async def send(frame: EgressFrame) -> None:
        sent.append(len(frame.data))

    stream = ProxyStream(1, send)
    writing = asyncio.create_task(stream.write(b"x" * (WINDOW_BYTES + 10)))
    await asyncio.sleep(0)
    assert sum(sent) == WINDOW_BYTES
    assert not writing.done()
    stream.take(EgressFrame(credit=10))
    await writing
    assert sum(sent) == WINDOW_BYTES + 10


async def test_the_nodes_own_proxy_is_asked_by_address_for_public_hosts_and_by_name_for_named_ones() -> None:
    requests: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.read()

    async with serving(proxy) as port:
        outlet = ThroughProxy(f"http://ada:pw@127.0.0.1:{port}", "direct.test")
        names = Names(a_test=[["1.1.1.1"]])
        for target in ("a.test:443", "b.test:443"):
            program = Program(names, outlet, grant=["b.test"], public=True)
            assert status(await program.ask(f"CONNECT {target} HTTP/1.0\r\n\r\n".encode())) == 200
    assert [head.split(b"\r\n")[0] for head in requests] == [
        b"CONNECT 1.1.1.1:443 HTTP/1.1",
        b"CONNECT b.test:443 HTTP/1.1",
    ]
    assert b"Proxy-Authorization: Basic YWRhOnB3" in requests[0]
    assert names.lookups == ["a.test"]


async def test_an_early_answer_comes_back_though_the_body_is_not_wanted() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with serving(refuse) as port:
        program = Program(Names(a_test=[["10.7.7.7"]]), grant=[f"a.test:{port}"])
        program.write(f"PUT http://a.test:{port}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\nx".encode())
        assert status(await program.serve()) == 413


async def test_a_sandbox_has_few_questions_for_names_at_once_however_slow_their_answers() -> None:
    class Slow:
        lookups = 0
        answer = asyncio.Event()

        async def addresses(self, host: str) -> list[str]:
            self.lookups += 1
            await self.answer.wait()
            return ["10.0.0.1"]

    slow = Slow()
    dialer = Dialer(
        policy_of(pb.NetworkGrant(mode=pb.NETWORK_MODE_PUBLIC), EgressSettings()),
        Upstream(EgressSettings(connect_seconds=0.02), slow, Redirected(1), Reserved(slow)),
    )
    for _ in range(10):
        with pytest.raises(TargetUnreachable, match="does not answer in time"):
            await dialer.connect(EgressTarget("a.test", 443))
    assert slow.lookups == 4
    slow.answer.set()
    async with asyncio.timeout(20):
        with pytest.raises(EgressRefused, match="private"):
            await _answered(dialer, EgressTarget("a.test", 443))


async def _answered(dialer: Dialer, target: EgressTarget) -> None:
    # Even an answer that is there may take a busy machine longer than the little that is waited here.
    while True:
        with suppress(TargetUnreachable):
            await dialer.connect(target)
