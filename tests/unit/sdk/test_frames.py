"""Frames on a byte stream: whole messages out of bytes that come in any parts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandmesh.shared import frames


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 50), min_size=1))
def test_messages_come_whole_however_their_bytes_are_cut(messages: list[bytes], sizes: list[int]) -> None:
    data = b"".join(map(frames.pack, messages))
    buffer = frames.FrameBuffer(40)
    received: list[bytes] = []
    while data:
        for size in sizes:
            received += buffer.feed(data[:size])
            data = data[size:]
    assert received == messages


@pytest.mark.parametrize("parts", [1, 2, 4], ids=["with the others", "in two parts", "byte by byte"])
def test_a_message_over_the_limit_is_refused_once_its_length_is_there(parts: int) -> None:
    buffer = frames.FrameBuffer(8)
    large = frames.prefix(9)
    size = len(large) // parts
    *first, last = (large[at : at + size] for at in range(0, len(large), size))
    assert list(buffer.feed(frames.pack(b"12345678"))) == [b"12345678"]
    assert [message for part in first for message in buffer.feed(part)] == []
    with pytest.raises(frames.FrameTooLarge, match="9 bytes is over the limit of 8"):
        list(buffer.feed(last))


async def test_a_stream_reader_gives_message_by_message() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(frames.pack(b"one") + frames.pack(b"") + frames.pack(b"long"))
    assert [await frames.read(reader, 3), await frames.read(reader, 3)] == [b"one", b""]
    with pytest.raises(frames.FrameTooLarge):
        await frames.read(reader, 3)
