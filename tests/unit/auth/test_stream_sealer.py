"""Streams are readable only with the mesh's secret, under their name, whole and in order."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from sandmesh.errors import WorkspaceNotReady
from sandmeshd.auth.stream_sealer import StreamSealer

NAME, PURPOSE = "profiles/0a.1b", "browser profiles"
SECRET = "a secret of a mesh that is long enough"  # noqa: S105 - a test's


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    """Yield pieces."""
    for one in data:
        yield one


async def sealed(*data: bytes, name: str = NAME) -> bytes:
    """Return a sealed stream."""
    return b"".join([piece async for piece in StreamSealer(SECRET, PURPOSE).sealed(name, pieces(*data))])


async def unsealed(*data: bytes, name: str = NAME, secret: str = SECRET, purpose: str = PURPOSE) -> bytes:
    """Return what was sealed."""
    return b"".join([piece async for piece in StreamSealer(secret, purpose).unsealed(name, pieces(*data))])


@pytest.mark.parametrize("sizes", [(), (1,), (0, 5), (100, 1 << 20, 3), ((5 << 20) + 7,)])
async def test_a_stream_comes_back_however_it_is_cut(sizes: tuple[int, ...]) -> None:
    whole = [secrets.token_bytes(size) for size in sizes]
    data = await sealed(*whole)
    assert await unsealed(data) == b"".join(whole)
    assert await unsealed(*(data[at : at + 977_777] for at in range(0, len(data), 977_777))) == b"".join(whole)


async def test_nothing_of_it_shows_and_equal_streams_are_sealed_differently() -> None:
    data = await sealed(b"cookie=of-ada")
    assert b"cookie" not in data
    assert data != await sealed(b"cookie=of-ada")


async def test_another_mesh_name_or_purpose_reads_nothing() -> None:
    data = await sealed(b"cookie")
    for other in ({"secret": SECRET + "!"}, {"name": "profiles/0a.2c"}, {"purpose": "secrets"}):
        with pytest.raises(WorkspaceNotReady, match="a mesh with another secret, or was changed"):
            await unsealed(data, **other)


async def test_what_was_cut_off_changed_or_reordered_is_refused() -> None:
    data = await sealed(b"a" * 100, b"b" * 100)
    start, frame = 18 + 32, 4 + 100 + 16
    first, second = data[start : start + frame], data[start + frame : start + 2 * frame]
    swapped = data[:start] + second + first + data[start + 2 * frame :]
    broken = [b"", b"short", data[:start], data[: start + frame], data[: start + 2 * frame], data[:-1], swapped]
    broken += [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    for each in broken:
        with pytest.raises(WorkspaceNotReady):
            await unsealed(each)
