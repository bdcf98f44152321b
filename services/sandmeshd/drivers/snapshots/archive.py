"""The snapshots of a node on its disk: a directory each, which is there whole or not at all.

`files.tar` is what the agent gave, `snapshot.json` the checksum of the rest of it and then what is known, in which the
checksum of the tar is. A directory whose name begins with a dot is one that was being made or removed.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import structlog
from google.protobuf import json_format

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import AlreadyExists, InvalidArgument, SnapshotDamaged, SnapshotNotFound, TooLarge
from sandmeshd.runtime.full_disk import full_disk_explained

log = structlog.get_logger()

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_FILES, _FACTS = "files.tar", "snapshot.json"
_PIECE: Final = 1 << 20


class SnapshotArchive:
    """The snapshots below a directory, each of at most so many bytes; one driver at a time has it."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes

    async def save(
        self, snapshot: pb.RuntimeSnapshot, stream: AsyncGenerator[bytes], ttl: timedelta = timedelta()
    ) -> pb.RuntimeSnapshot:
        """Keep a stream, for `ttl` unless that is 0; return its metadata. What fails or is cancelled leaves nothing.

        Raises:
            TooLarge: It has more bytes than a snapshot may.
            AlreadyExists: Another took one of that id meanwhile.
            RuntimeUnavailable: The disk is full.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        fresh = self._folder / f".fresh-{secrets.token_hex(8)}"
        with full_disk_explained(self._folder):
            fresh.mkdir(mode=0o700)
            try:
                async with aclosing(stream):
                    await self._write(fresh, snapshot, stream)
                if ttl:
                    snapshot.expire_time.FromDatetime(datetime.now(UTC) + ttl)
                (fresh / _FACTS).write_bytes(_written(snapshot))
                self._place(fresh, snapshot.snapshot_id)
            finally:
                _remove(fresh)
        return snapshot

    async def _write(self, fresh: Path, snapshot: pb.RuntimeSnapshot, stream: AsyncIterator[bytes]) -> None:
        digest = hashlib.sha256()
        gathered: list[bytes] = []
        with (fresh / _FILES).open("xb", buffering=0) as file:

            def put() -> None:
                for piece in gathered:
                    digest.update(piece)
                    file.write(piece)
                gathered.clear()

            async for data in stream:
                gathered.append(data)
                snapshot.size_bytes += len(data)
                self._check_size(snapshot)
                if sum(map(len, gathered)) >= _PIECE:
                    await asyncio.to_thread(put)
            await asyncio.to_thread(put)
            await asyncio.to_thread(os.fsync, file.fileno())
        snapshot.checksum = f"sha256:{digest.hexdigest()}"

    def _check_size(self, snapshot: pb.RuntimeSnapshot) -> None:
        if snapshot.size_bytes > self._limit:
            fix = "remove files that need not be kept, or raise SANDMESH_SNAPSHOT_LIMIT"
            facts = {"limit": str(self._limit), "fix": fix}
            raise TooLarge(f"the snapshot is larger than the {self._limit:,} bytes that one may have; {fix}", facts)

    def _place(self, fresh: Path, snapshot_id: str) -> None:
        try:
            fresh.rename(self._path(snapshot_id))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise AlreadyExists(f"there is a snapshot {snapshot_id} by now", {"snapshot_id": snapshot_id}) from None

    def find(self, snapshot_id: str) -> pb.RuntimeSnapshot | None:
        """Return a snapshot's metadata, None where there is none or its time is over.

        Raises:
            SnapshotDamaged: What is known cannot be trusted.
            InvalidArgument: The id cannot be one.
        """
        try:
            data = (self._path(snapshot_id) / _FACTS).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        snapshot = _read(snapshot_id, data)
        return None if snapshot.HasField("expire_time") and seconds_left(snapshot) <= 0 else snapshot

    def all(self) -> list[pb.RuntimeSnapshot]:
        """Return all whose checksum holds and whose time is not over, by id."""
        return [snapshot for _, snapshot in self._readable() if snapshot is not None]

    def _readable(self) -> Iterator[tuple[Path, pb.RuntimeSnapshot | None]]:
        for path in sorted(self._folder.glob("[!.]*")) if self._folder.is_dir() else []:
            try:
                yield path, self.find(path.name)
            except SnapshotDamaged as error:
                log.warning("a snapshot is damaged", snapshot_id=path.name, error=error.message)

    async def stream(self, snapshot: pb.RuntimeSnapshot) -> AsyncGenerator[bytes]:
        """Yield the saved bytes; the last one comes only where the checksum holds.

        Raises:
            SnapshotNotFound: It was removed meanwhile.
            SnapshotDamaged: It is not what it was.
        """
        digest, last = hashlib.sha256(), b""
        try:
            file = (self._path(snapshot.snapshot_id) / _FILES).open("rb", buffering=0)
        except FileNotFoundError:
            raise not_found(snapshot.snapshot_id) from None
        with file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                digest.update(piece)
                if last:
                    yield last
                last = piece
        if f"sha256:{digest.hexdigest()}" != snapshot.checksum:
            raise _damaged(snapshot.snapshot_id, "its files have another checksum")
        yield last

    async def verified(self, snapshot_id: str) -> tuple[pb.RuntimeSnapshot, Path]:
        """Return a snapshot's metadata and the tar of its files, whose checksum holds.

        Raises:
            SnapshotNotFound: It is not on this node.
            SnapshotDamaged: It cannot be trusted.
            InvalidArgument: The id cannot be one.
        """
        found = self.find(snapshot_id)
        if found is None:
            raise not_found(snapshot_id)
        async for _ in self.stream(found):
            pass
        return found, self._path(snapshot_id) / _FILES

    async def remove(self, snapshot_id: str) -> None:
        """Remove a snapshot; one that is not there is fine."""
        gone = self._folder / f".gone-{secrets.token_hex(8)}"
        try:
            self._path(snapshot_id).rename(gone)
        except FileNotFoundError:
            return
        await asyncio.to_thread(_remove, gone)

    def sweep(self) -> None:
        """Remove what a killed process was making or removing, and what is over."""
        for path in self._folder.glob(".*"):
            _remove(path)
        for path, snapshot in self._readable():
            if snapshot is None:
                _remove(path)

    def _path(self, snapshot_id: str) -> Path:
        if not _ID.fullmatch(snapshot_id):
            message = f"{snapshot_id!r} is not a snapshot id: 1 to 128 letters, digits, _, . and -, no sign first"
            raise InvalidArgument(message, {"field": "snapshot_id"})
        return self._folder / snapshot_id


def seconds_left(snapshot: pb.RuntimeSnapshot) -> float:
    """Return how long a snapshot with an end is kept yet, in seconds."""
    return (snapshot.expire_time.ToDatetime(UTC) - datetime.now(UTC)).total_seconds()


def archive_of(node_state: Path, limit_bytes: int = 0) -> SnapshotArchive:
    """Return the snapshots of the node whose state is there."""
    return SnapshotArchive(node_state / "snapshots", limit_bytes)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _written(snapshot: pb.RuntimeSnapshot) -> bytes:
    body = json_format.MessageToJson(snapshot).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _read(snapshot_id: str, data: bytes) -> pb.RuntimeSnapshot:
    check, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != check:
        raise _damaged(snapshot_id, "what is known of it has another checksum")
    try:
        snapshot = json_format.Parse(body, pb.RuntimeSnapshot(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, RecursionError):
        raise _damaged(snapshot_id, "what is known of it is of another release") from None
    if snapshot.snapshot_id != snapshot_id:
        raise _damaged(snapshot_id, f"it is {snapshot.snapshot_id} by what is known of it")
    return snapshot


def _damaged(snapshot_id: str, how: str) -> SnapshotDamaged:
    message = f"snapshot {snapshot_id} cannot be trusted: {how}. No sandbox began with it; remove it, and take another"
    return SnapshotDamaged(message, {"snapshot_id": snapshot_id, "detail": how})


def not_found(snapshot_id: str) -> SnapshotNotFound:
    """Return the error for a snapshot that does not exist."""
    return SnapshotNotFound(f"there is no snapshot {snapshot_id}", {"snapshot_id": snapshot_id})
