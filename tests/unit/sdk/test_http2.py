"""One stream of HTTP/2, byte by byte."""

from __future__ import annotations

import random
import struct

import grpc
import pytest

from sandmesh._client.tcp import http2
from sandmesh._client.tcp.hpack import HpackError, encode
from sandmesh._client.tcp.http2 import FRAME_BYTES, PREFACE, Http2Error, Http2Stream
from sandmesh.shared.frames import MAX_SOCKET_MESSAGE

DATA, HEADERS, RESET, SETTINGS, PROMISE, PING, GOAWAY, UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
WINDOW = 4
"""The setting of what the window of a stream begins with."""
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32
OK = ((":status", "200"), ("content-type", "application/grpc"))


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def message(data: bytes) -> bytes:
    return struct.pack("!BI", 0, len(data)) + data


def headers(fields: tuple[tuple[str, str], ...], flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, 1, encode(fields))


def setting(key: int, value: int) -> bytes:
    return frame(SETTINGS, payload=struct.pack("!HI", key, value))


def update(stream: int, more: int) -> bytes:
    return frame(UPDATE, 0, stream, more.to_bytes(4))


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    found: list[tuple[int, int, int, bytes]] = []
    while data:
        end = 9 + int.from_bytes(data[:3])
        found.append((data[3], data[4], int.from_bytes(data[5:9]), data[9:end]))
        data = data[end:]
    return found


def begun(*received: bytes) -> Http2Stream:
    """Return a stream whose peer has said hello, and then this."""
    stream = Http2Stream(((":path", "/m"),))
    assert list(stream.feed(frame(SETTINGS) + b"".join(received))) == []
    stream.output()
    return stream


def test_it_begins_with_the_preface_and_its_request() -> None:
    sent = Http2Stream(((":path", "/m"),)).begin()
    assert sent.startswith(PREFACE)
    kinds = [(kind, stream) for kind, _, stream, _ in frames(sent.removeprefix(PREFACE))]
    assert kinds == [(SETTINGS, 0), (UPDATE, 0), (HEADERS, 1)]


def test_messages_come_out_however_their_bytes_arrive() -> None:
    texts = [b"one", b"", b"x" * 40_000]
    body = b"".join(map(message, texts))
    sent = frame(SETTINGS) + headers(OK)
    for start in range(0, len(body), 7_000):
        sent += frame(DATA, 0, 1, body[start : start + 7_000])
    for step in (1, 10, 1_000, len(sent)):
        stream = Http2Stream(())
        found = [event for at in range(0, len(sent), step) for event in stream.feed(sent[at : at + step])]
        assert found == texts
        assert stream.status is None


def test_padding_priority_and_continuations_are_taken_off() -> None:
    block = encode(OK)
    padded = frame(HEADERS, PADDED | PRIORITY, 1, b"\x03" + b"\0" * 5 + block[:4] + b"\0" * 3)
    rest = frame(CONTINUATION, 0, 1, block[4:6]) + frame(CONTINUATION, END_HEADERS, 1, block[6:])
    stream = begun(padded + rest)
    assert list(stream.feed(frame(DATA, PADDED, 1, b"\x02" + message(b"hi") + b"\0\0"))) == [b"hi"]
    assert list(stream.feed(frame(99, 0, 1, b"of another version"))) == []


def test_settings_and_pings_are_answered() -> None:
    stream = Http2Stream(())
    list(stream.feed(frame(SETTINGS) + frame(PING, payload=b"12345678") + frame(PING, ACK, payload=b"87654321")))
    assert frames(stream.output()) == [(SETTINGS, ACK, 0, b""), (PING, ACK, 0, b"12345678")]
    assert stream.output() == b""


def test_no_more_is_sent_than_there_is_room_for() -> None:
    stream = begun(setting(WINDOW, 20_000))
    first = frames(stream.send(b"a" * 100_000))
    assert [len(payload) for *_, payload in first] == [FRAME_BYTES, 20_000 - FRAME_BYTES]
    assert stream.blocked
    assert stream.end() == b""
    list(stream.feed(update(1, 60_000)))  # the connection's own window has less room
    more = frames(stream.output())
    assert sum(len(payload) for *_, payload in first + more) == 65_535
    list(stream.feed(update(0, 200_000) + setting(WINDOW, 60_000)))
    rest = frames(stream.output())
    assert b"".join(payload for kind, *_, payload in first + more + rest if kind == DATA) == message(b"a" * 100_000)
    assert rest[-1] == (DATA, END_STREAM, 1, b"")
    assert not stream.blocked


def test_a_window_that_shrinks_below_nothing_is_waited_for() -> None:
    stream = begun()
    stream.send(b"a" * 30_000)
    list(stream.feed(setting(WINDOW, 10)))
    stream.output()
    assert stream.send(b"b") == b""
    list(stream.feed(update(1, 30_001)))
    assert frames(stream.output())[0][3] == message(b"b")


def test_room_is_given_back_for_what_was_received(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "_REPLENISH", 100)
    stream = begun(headers(OK))
    list(stream.feed(frame(DATA, 0, 1, message(b"a" * 200))))
    assert frames(stream.output()) == [(UPDATE, 0, 0, (205).to_bytes(4)), (UPDATE, 0, 1, (205).to_bytes(4))]


def test_the_end_brings_its_status_with_details() -> None:
    trailers = (("grpc-status", "16"), ("grpc-message", "who%20are you"), ("grpc-status-details-bin", "AAEC"))
    stream = begun(headers(OK), headers(trailers, END_HEADERS | END_STREAM))
    assert stream.status == http2.StreamStatus(
        grpc.StatusCode.UNAUTHENTICATED, "who are you", (("grpc-status-details-bin", b"\0\1\2"),)
    )
    alone = begun(headers((*OK, ("grpc-status", "0")), END_HEADERS | END_STREAM))
    assert alone.status is not None
    assert alone.status.code is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (((":status", "503"),), grpc.StatusCode.UNAVAILABLE),
        (((":status", "403"), ("content-type", "text/html")), grpc.StatusCode.PERMISSION_DENIED),
        (((":status", "200"), ("content-type", "text/html")), grpc.StatusCode.UNKNOWN),
        ((), grpc.StatusCode.UNKNOWN),
    ],
)
def test_what_answers_without_grpc_is_refused(fields: tuple[tuple[str, str], ...], code: grpc.StatusCode) -> None:
    status = begun(headers(fields)).status
    assert status is not None
    assert status.code is code


def test_an_interim_response_is_not_the_response() -> None:
    stream = begun(headers(((":status", "103"),)), headers(OK))
    assert stream.status is None


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(RESET, 0, 1, (8).to_bytes(4)), grpc.StatusCode.UNAVAILABLE),
        (frame(GOAWAY, payload=bytes(8)), grpc.StatusCode.UNAVAILABLE),
        (headers(OK) + frame(DATA, END_STREAM, 1, b""), grpc.StatusCode.INTERNAL),
    ],
)
def test_an_end_without_a_status_has_one(sent: bytes, code: grpc.StatusCode) -> None:
    status = begun(sent).status
    assert status is not None
    assert status.code is code


def test_a_farewell_does_not_end_the_stream_that_was_accepted() -> None:
    stream = begun(headers(OK), frame(GOAWAY, payload=(1).to_bytes(4) + bytes(4)))
    assert list(stream.feed(frame(DATA, 0, 1, message(b"still")))) == [b"still"]


@pytest.mark.parametrize(
    "sent",
    [
        (FRAME_BYTES + 1).to_bytes(3) + bytes(6),
        frame(DATA, 0, 1, message(b"before the response")),
        frame(DATA, 0, 3, b""),
        headers(OK) + headers(OK),
        headers(OK) + frame(DATA, PADDED, 1, b"\x09short"),
        headers(OK) + frame(DATA, 0, 1, struct.pack("!BI", 1, 2)),
        headers(OK) + frame(DATA, 0, 1, struct.pack("!BI", 0, MAX_SOCKET_MESSAGE + 1)),
        headers(OK) + headers((("grpc-status", "0"), ("x-bin", "a")), END_HEADERS | END_STREAM),
        frame(HEADERS, 0, 1, b"") + frame(PING, payload=bytes(8)),
        frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, bytes(FRAME_BYTES)) * 5,
        frame(HEADERS, END_HEADERS, 3, encode(OK)),
        frame(CONTINUATION, END_HEADERS, 1, b""),
        frame(PROMISE, END_HEADERS, 1, bytes(4)),
        frame(PING, payload=b"short"),
        frame(SETTINGS, payload=b"short"),
        frame(UPDATE, payload=bytes(4)),
        update(0, (1 << 31) - 1),
        setting(WINDOW, (1 << 32) - 1),
    ],
)
def test_what_breaks_a_rule_is_refused(sent: bytes) -> None:
    with pytest.raises(Http2Error):
        begun(sent)


@pytest.mark.parametrize("sent", [b"HTTP/1.1 400 Bad Request\r\n", frame(PING, payload=bytes(8))])
def test_who_does_not_begin_with_settings_is_refused(sent: bytes) -> None:
    stream = Http2Stream(())
    with pytest.raises(Http2Error):
        list(stream.feed(sent))
    assert not stream.greeted


def test_garbage_is_refused_and_does_nothing_else() -> None:
    chance = random.Random(1)  # noqa: S311 - the same garbage each time
    for _ in range(2000):
        kind, flags, size = chance.randrange(10), chance.randrange(256), chance.randrange(40)
        stream = begun(headers(OK))
        try:
            list(stream.feed(frame(kind, flags, chance.randrange(3), chance.randbytes(size))))
        except (Http2Error, HpackError):
            continue
