"""Header fields as HPACK writes them."""

from __future__ import annotations

import random

import pytest

from sandmesh._client.tcp.hpack import LONGEST, HpackError, decode, encode

C_6_1 = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3"


@pytest.mark.parametrize(
    ("block", "fields"),
    [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", (("custom-key", "custom-header"),)),  # C.2.1
        ("040c2f73616d706c652f70617468", ((":path", "/sample/path"),)),  # C.2.2
        ("100870617373776f726406736563726574", (("password", "secret"),)),  # C.2.3
        ("82", ((":method", "GET"),)),  # C.2.4
        (
            C_6_1,
            (
                (":status", "302"),
                ("cache-control", "private"),
                ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
                ("location", "https://www.example.com"),
            ),
        ),  # C.6.1
        ("20887f0b88ffffffffffffff7f0000", None),
    ],
)
def test_the_examples_of_the_specification_are_read(block: str, fields: tuple[tuple[str, str], ...] | None) -> None:
    if fields is None:
        with pytest.raises(HpackError):
            decode(bytes.fromhex(block))
    else:
        assert decode(bytes.fromhex(block)) == fields


def test_what_is_written_is_read_again_whatever_its_length() -> None:
    fields = tuple((f"x-{length}", "v" * length) for length in (0, 1, 126, 127, 128, 254, 255, 16_000))
    assert decode(encode(fields)) == fields


def test_a_token_is_written_so_that_nobody_on_the_way_keeps_it() -> None:
    assert encode((("authorization", "Bearer x"),))[0] & 0xF0 == 0x10


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # no field has the index 0
        b"\xbe",  # the first of the table that was switched off
        b"\xff\xff\xff\xff\xff\xff",  # a number without end
        b"\x10\x05abc",  # a name that ends early
        b"\x10\x01a",  # no value
        b"\x10\x81\x00\x00",  # a Huffman code's padding that is no ones
        b"\x10\x84\xff\xff\xff\xff\x00",  # the symbol that must not come
    ],
)
def test_what_is_not_valid_is_refused(block: bytes) -> None:
    with pytest.raises(HpackError):
        decode(block)


def test_a_short_block_does_not_become_long() -> None:
    field = encode((("x", "v" * 1000),))
    with pytest.raises(HpackError, match="too long"):
        decode(field * (LONGEST // 1000 + 1))


def test_garbage_is_refused_and_does_nothing_else() -> None:
    chance = random.Random(1)  # noqa: S311 - the same garbage each time
    for _ in range(2000):
        try:
            decode(chance.randbytes(chance.randrange(80)))
        except HpackError:
            continue
