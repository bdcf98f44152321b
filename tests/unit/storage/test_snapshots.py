"""Saved workspaces in a directory and on a server that speaks S3: whole, checked, incremental, never half."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sandmesh.errors import InvalidArgument, LeaseLost, StorageUnavailable, TooLarge, WorkspaceNotReady
from sandmesh.shared.files.tar import pack
from sandmeshd.storage import SaveSize, StorageSettings, WorkspaceSnapshots, open_storage
from sandmeshd.storage.chunks import LARGEST, cut
from tests.oss import oss_server

from .conftest import LIMIT, oss_settings

KEY = "0123.abcd"


def noise(seed: int, size: int) -> bytes:
    """Give bytes that are not alike, the same for the same seed."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


async def stream(data: bytes, at_once: int = 100_000) -> AsyncIterator[bytes]:
    """Give bytes in pieces."""
    for start in range(0, len(data), at_once):
        yield data[start : start + at_once]


async def broken(data: bytes) -> AsyncIterator[bytes]:
    """Give the bytes and then fail."""
    yield data
    raise ConnectionResetError("its sandbox is gone")


async def joined(snapshots: WorkspaceSnapshots, key: str = KEY) -> bytes:
    """Read what is saved."""
    restored = await snapshots.restore(key)
    assert restored is not None
    return b"".join([piece async for piece in restored])


def tree(folder: Path, files: dict[str, bytes]) -> bytes:
    """Write files and give the directory as a tar stream."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    fd = os.open(folder, os.O_RDONLY)
    try:
        return b"".join(pack(fd))
    finally:
        os.close(fd)


async def test_what_is_saved_comes_back_and_only_what_changed_is_sent_again(
    snapshots: WorkspaceSnapshots, tmp_path: Path
) -> None:
    files = {f"d{number % 7}/f{number}": noise(number, 20_000) for number in range(300)}
    folder = tmp_path / "workspace"
    first = tree(folder, {**files, "large": noise(999, 9 << 20)})
    assert await snapshots.restore(KEY) is None
    assert await snapshots.save(KEY, 1, stream(first)) == SaveSize(len(first), len(first))
    assert await joined(snapshots) == first
    assert (await snapshots.save(KEY, 2, stream(first, 7_777))).uploaded == 0
    second = tree(folder, {"d3/f3": b"changed", "d3/new": b"new"})
    saved = await snapshots.save(KEY, 3, stream(second))
    assert 0 < saved.uploaded < len(second) // 3
    assert await joined(snapshots) == second
    assert await snapshots.restore("0123.other") is None


async def test_a_save_that_fails_half_way_leaves_what_was_there(snapshots: WorkspaceSnapshots) -> None:
    data = noise(2, 6 << 20)
    await snapshots.save(KEY, 1, stream(data))
    with pytest.raises(ConnectionResetError):
        await snapshots.save(KEY, 2, broken(noise(3, 9 << 20)))
    assert await joined(snapshots) == data
    await snapshots.save(KEY, 3, stream(b"short"))
    assert await joined(snapshots) == b"short"


async def test_an_older_lease_never_replaces_what_a_later_one_saved(snapshots: WorkspaceSnapshots) -> None:
    await snapshots.save(KEY, 7, stream(b"later"))
    with pytest.raises(LeaseLost):
        await snapshots.save(KEY, 6, stream(b"older"))
    assert await joined(snapshots) == b"later"


async def test_what_is_larger_than_the_limit_is_refused_and_what_was_there_stays(snapshots: WorkspaceSnapshots) -> None:
    await snapshots.save(KEY, 1, stream(b"small"))
    with pytest.raises(TooLarge, match="SANDMESH_STORAGE_LIMIT"):
        await snapshots.save(KEY, 2, stream(bytes(LIMIT + 1), 1 << 20))
    assert await joined(snapshots) == b"small"


@pytest.mark.parametrize("how", ["changed", "cut short", "gone", "manifest", "no manifest"])
async def test_a_storage_that_lies_is_found_out(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "kept"
    async with open_storage(StorageSettings(service="local", folder=folder)) as snapshots:
        await snapshots.save(KEY, 1, stream(noise(4, 5 << 20)))
        piece = min((folder / KEY / "pieces").iterdir())
        manifest = folder / KEY / "manifest.json"
        data = piece.read_bytes()
        if how == "changed":
            piece.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        elif how == "cut short":
            piece.write_bytes(data[:-1])
        elif how == "gone":
            piece.unlink()
        else:
            manifest.write_bytes(manifest.read_bytes()[:-2] if how == "manifest" else b"\xff\x00")
        with pytest.raises(WorkspaceNotReady, match="is damaged"):
            await joined(snapshots)


async def test_a_storage_that_does_not_answer_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        settings = StorageSettings(service="s3", bucket="b", endpoint=address, timeout_seconds=1.0)
        async with open_storage(settings) as snapshots:
            with pytest.raises(StorageUnavailable, match="manifest"):
                await snapshots.save(KEY, 1, stream(b"data"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"service": "s3"}, "SANDMESH_STORAGE_BUCKET"),
        ({"service": "oss", "bucket": "b"}, "SANDMESH_STORAGE_ENDPOINT"),
        ({"service": "local", "bucket": "b"}, "unset SANDMESH_STORAGE_BUCKET"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        StorageSettings.model_validate(settings)


async def test_a_wrong_secret_is_refused_by_the_service_and_said() -> None:
    async with oss_server() as server:
        async with open_storage(oss_settings(server, "another")) as snapshots:
            with pytest.raises(StorageUnavailable, match="PermissionDenied"):
                await snapshots.save(KEY, 1, stream(b"data"))
        assert server.objects == {}


@pytest.mark.parametrize("service", ["oss", "gcs", "azblob"])
async def test_each_service_of_the_library_is_there(service: str) -> None:
    secret = {"gcs": "e30=", "oss": "secret", "azblob": "c2VjcmV0"}[service]
    settings = {
        "service": service,
        "bucket": "b",
        "endpoint": "https://e.example",
        "key_id": "id",
        "key_secret": secret,
    }
    async with open_storage(StorageSettings.model_validate(settings)) as snapshots:
        assert isinstance(snapshots, WorkspaceSnapshots)


async def test_a_service_that_is_told_nonsense_is_refused() -> None:
    nonsense = "not an address at all\0"
    with pytest.raises(ValidationError, match="control characters"):
        StorageSettings(service="oss", bucket="b", endpoint=nonsense)
    usual = StorageSettings(service="oss", bucket="b", endpoint="https://oss.example.org")
    settings = usual.model_copy(update={"endpoint": nonsense})
    with pytest.raises(InvalidArgument, match="oss"):
        async with open_storage(settings):
            pass


@given(st.lists(st.binary(max_size=3000), max_size=20))
async def test_pieces_together_are_the_stream_whatever_it_is(parts: list[bytes]) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    pieces = [piece async for piece in cut(stream())]
    assert b"".join(pieces) == b"".join(parts)
    assert all(0 < len(piece) <= LARGEST for piece in pieces)
