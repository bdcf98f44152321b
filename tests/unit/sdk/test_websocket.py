"""Byte streams in messages of a WebSocket, one end fed with what the other sends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandmesh.shared.websocket import (
    MOST_HEAD,
    MOST_MESSAGE,
    HeadBuffer,
    ProtocolError,
    WebSocketStream,
    accept_key,
    read_head,
)


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Inner(asyncio.Protocol):
    """Keeps what it received."""

    def __init__(self) -> None:
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.received += data


def end(*, is_client: bool) -> tuple[WebSocketStream, Wire, Inner]:
    wire, inner = Wire(), Inner()
    return WebSocketStream(wire, inner, is_client=is_client), wire, inner


def close_code(sent: bytes) -> int:
    code: int = struct.unpack("!H", sent[-2:])[0]
    return code


@given(
    written=st.lists(st.binary(max_size=300) | st.sampled_from([b"a" * 126, b"b" * 65536, b"c" * 70_000]), max_size=8),
    cuts=st.lists(st.integers(1, 5000), min_size=1, max_size=20),
    from_client=st.booleans(),
)
def test_bytes_arrive_as_they_were_written_however_they_are_cut(
    written: Sequence[bytes], cuts: Sequence[int], from_client: bool
) -> None:
    sender, wire, _ = end(is_client=from_client)
    receiver, _, inner = end(is_client=not from_client)
    for each in written:
        sender.write(each)
    at = turn = 0
    while at < len(wire.sent):
        size = cuts[turn % len(cuts)]
        receiver.feed(bytes(wire.sent[at : at + size]))
        at, turn = at + size, turn + 1
    assert bytes(inner.received) == b"".join(written)


def test_a_large_write_is_cut_into_messages() -> None:
    sender, wire, _ = end(is_client=False)
    sender.write(b"x" * (2 * MOST_MESSAGE + 1))
    assert len(wire.sent) == 2 * MOST_MESSAGE + 1 + 10 + 10 + 2


def test_any_mask_is_removed_and_fragments_are_joined() -> None:
    receiver, _, inner = end(is_client=False)
    key = bytes((0x37, 0xFA, 0x21, 0x3D))
    masked = bytes((0x7F, 0x9F, 0x4D, 0x51, 0x58))  # the RFC's own example
    receiver.feed(bytes((0x02, 0x85)) + key + masked[:2])
    receiver.feed(masked[2:] + bytes((0x80, 0x85)) + key + masked)
    assert bytes(inner.received) == b"HelloHello"


def test_a_ping_is_answered_with_its_data_also_within_a_message() -> None:
    client, wire, _ = end(is_client=True)
    client.ping()
    server, answered, inner = end(is_client=False)
    server.feed(bytes(wire.sent))
    assert bytes(answered.sent) == b"\x8a\x00"
    fragments = bytes((0x02, 0x81, 0, 0, 0, 0)) + b"a" + b"\x89\x82\0\0\0\0hi" + bytes((0x80, 0x81, 0, 0, 0, 0)) + b"b"
    server.feed(fragments)
    assert bytes(answered.sent[2:]) == b"\x8a\x02hi"
    assert bytes(inner.received) == b"ab"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x82\x01a", 1002),  # not masked
        (b"\xc2\x81\0\0\0\0a", 1002),  # compressed
        (b"\x81\x81\0\0\0\0a", 1003),  # text
        (b"\x80\x81\0\0\0\0a", 1002),  # continues nothing
        (b"\x02\x81\0\0\0\0a\x82\x81\0\0\0\0a", 1002),  # begins within another
        (b"\x89\xfe\x01\x00\0\0\0\0", 1002),  # a long ping
        (b"\x09\x80\0\0\0\0", 1002),  # a ping in parts
        (b"\x8b\x80\0\0\0\0", 1002),  # an unknown control message
        (b"\x88\x82\0\0\0\0\x03\xe8", 1000),  # the peer's own close
    ],
)
def test_what_is_not_as_the_rfc_has_it_ends_the_connection(data: bytes, code: int) -> None:
    server, wire, _ = end(is_client=False)
    server.feed(data)
    assert wire.closed
    assert close_code(bytes(wire.sent)) == code
    server.write(b"more")
    assert close_code(bytes(wire.sent)) == code


def test_a_closed_stream_says_so_once() -> None:
    server, wire, _ = end(is_client=False)
    server.close()
    server.close()
    assert bytes(wire.sent) == b"\x88\x02\x03\xe8"


def test_the_upgrade_is_that_of_the_rfc() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    first, headers = read_head(b"GET / HTTP/1.1\r\nA-B:  c:d \r\n")
    assert (first, headers) == ("GET / HTTP/1.1", {"a-b": "c:d"})
    with pytest.raises(ProtocolError):
        read_head(b"GET / HTTP/1.1\r\nnothing")


def test_a_head_comes_in_parts_with_what_follows_it() -> None:
    message = b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest"
    for cut in range(len(message)):
        head = HeadBuffer()
        parts = [head.feed(message[:cut]), head.feed(message[cut:])]
        found = [part for part in parts if part is not None]
        assert found[-1] == (b"GET / HTTP/1.1\r\nA: b", b"rest")


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_head_that_is_too_long_is_refused(end: bytes) -> None:
    head = HeadBuffer()
    assert head.feed(b"a" * MOST_HEAD) is None
    with pytest.raises(ProtocolError, match="no end"):
        head.feed(b"a" + end)
