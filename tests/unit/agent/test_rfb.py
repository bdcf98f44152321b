"""What viewers send to the X server: messages about the picture pass, input only of who is in control."""

from __future__ import annotations

import struct

import pytest

from sandmeshd.agent.tools.desktop.rfb import VERSION, RfbMessages
from sandmeshd.agent.tools.viewers import BadMessage

GREETING = VERSION + b"\x01" + b"\x01"
PICTURE = (
    b"\x00" + bytes(19),
    struct.pack(">BxH2i", 2, 2, 0, 16),
    b"\x03" + bytes(9),
    b"\x96" + bytes(9),
    b"\xf8" + bytes(7) + b"\x03" + b"abc",
)
INPUT = (
    b"\x04" + bytes(7),
    b"\x05" + bytes(5),
    struct.pack(">B3xi", 6, 4) + b"text",
    struct.pack(">B3xi", 6, -5) + b"12345",
    b"\xfa" + bytes(3),
    b"\xfb" + bytes(5) + b"\x01\x00" + bytes(16),
    b"\xff" + bytes(11),
)


def fed(allowed: bool, data: bytes, size: int) -> bytes:
    """Feed a greeting and data in pieces, and return what passes after the greeting."""
    messages = RfbMessages(lambda: allowed)
    sent = GREETING + data
    passed = b"".join(messages.feed(sent[at : at + size]) for at in range(0, len(sent), size))
    assert passed.startswith(GREETING)
    return passed.removeprefix(GREETING)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_input_passes_only_while_it_may_however_the_bytes_arrive(size: int) -> None:
    mixed = b"".join(part for pair in zip(INPUT, [*PICTURE, b"", b""], strict=True) for part in pair)
    assert fed(True, mixed, size) == mixed
    assert fed(False, mixed, size) == b"".join(PICTURE)


def test_a_viewer_that_only_watches_says_what_clipboards_it_understands_and_gives_none() -> None:
    understood, gives = (struct.pack(">B3xiI4s", 6, -8, flags << 24 | 1, b"1234") for flags in (0x01, 0x11))
    assert fed(False, understood + gives, 5) == understood


def test_permission_is_asked_for_each_message() -> None:
    allowed = [True]
    messages = RfbMessages(lambda: allowed[0])
    messages.feed(GREETING)
    assert messages.feed(INPUT[0]) == INPUT[0]
    allowed[0] = False
    assert messages.feed(INPUT[0] + PICTURE[2]) == PICTURE[2]


def test_a_viewer_never_has_the_desktop_for_itself() -> None:
    assert RfbMessages(lambda: True).feed(VERSION + b"\x01\x00") == GREETING


def test_an_encoding_that_changes_the_length_of_messages_is_not_agreed_on() -> None:
    asked = struct.pack(">BxH3i", 2, 3, 7, -316, -223)
    assert fed(True, asked, 1000) == struct.pack(">BxH2i", 2, 2, 7, -223)


@pytest.mark.parametrize(
    "data",
    [
        b"RFB 003.003\n",
        VERSION + b"\x02",
        GREETING + b"\x77",
        GREETING + struct.pack(">B3xi", 6, 1 << 30),
        GREETING + struct.pack(">B3xi", 6, -(1 << 31)),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        RfbMessages(lambda: True).feed(data)
