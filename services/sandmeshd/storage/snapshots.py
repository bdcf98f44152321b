"""Saved workspaces: pieces by their checksums, and last a manifest that lists them in order."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from sandmesh.errors import LeaseLost, TooLarge, WorkspaceNotReady
from sandmeshd.storage.chunks import cut
from sandmeshd.storage.objects import Objects

FORMAT: Final = 1


class WorkspaceManifest(BaseModel):
    """The content of a saved workspace."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1]
    fencing_token: int
    saved: str
    size: NonNegativeInt
    sha256: str
    pieces: tuple[tuple[str, NonNegativeInt], ...]


@dataclass(frozen=True)
class SaveSize:
    """The size of a save: the workspace's bytes as a tar stream, and those that the storage did not have yet."""

    size: int
    uploaded: int


class WorkspaceSnapshots:
    """The saved workspaces of a mesh, each under a key of hexadecimal digits and dots."""

    def __init__(self, objects: Objects, limit_bytes: int, concurrency: int) -> None:
        self._objects = objects
        self._limit = limit_bytes
        self._concurrency = concurrency

    async def save(self, key: str, fencing_token: int, stream: AsyncIterator[bytes]) -> SaveSize:
        """Save a tar stream, replacing what is there; a save that fails changes nothing.

        Raises:
            LeaseLost: What is there was saved under a higher token.
            TooLarge: It is larger than a saved workspace may be.
            StorageUnavailable: The storage did not accept it.
        """
        before = await self._read(key, damaged_is_none=True)
        if before is not None and before.fencing_token > fencing_token:
            facts = {"workspace": key}
            raise LeaseLost(f"workspace {key} was saved under a later lease and stays as it is", facts)
        there = {name.rpartition("/")[2] async for name in self._objects.names(f"{key}/pieces/")}
        upload = _Upload(self._objects, key, there)
        async with _BoundedTasks(self._concurrency) as tasks:
            async for piece in cut(stream):
                upload.count(piece, self._limit)
                await tasks.run(upload.put(piece))
        await self._objects.put(_manifest_name(key), _encode_manifest(upload.manifest(fencing_token)))
        await self._sweep(key, set(upload.names))
        return SaveSize(upload.size, upload.uploaded)

    async def restore(self, key: str) -> AsyncIterator[bytes] | None:
        """Return the tar stream that was saved, None where nothing was. Each piece is verified before it is yielded.

        Raises:
            WorkspaceNotReady: What is there is damaged; also while the stream is read.
            StorageUnavailable: The storage does not answer; also while the stream is read.
        """
        manifest = await self._read(key)
        return None if manifest is None else self._pieces(key, manifest)

    async def delete(self, key: str) -> None:
        """Delete what was saved, if anything was; one that is interrupted leaves nothing to restore.

        Raises:
            StorageUnavailable: The storage did not accept it.
        """
        await self._objects.delete(_manifest_name(key))
        await self._sweep(key, set())

    async def _pieces(self, key: str, manifest: WorkspaceManifest) -> AsyncIterator[bytes]:
        whole = hashlib.sha256()
        for name, size in manifest.pieces:
            data = await self._objects.get(_piece_name(key, name))
            if data is None:
                raise _damaged(key, f"its piece {name} is missing")
            if len(data) != size or hashlib.sha256(data).hexdigest() != name:
                raise _damaged(key, f"its piece {name} has another checksum")
            whole.update(data)
            yield data
        if whole.hexdigest() != manifest.sha256:
            raise _damaged(key, "its pieces together have another checksum")

    async def _read(self, key: str, *, damaged_is_none: bool = False) -> WorkspaceManifest | None:
        data = await self._objects.get(_manifest_name(key))
        if data is None:
            return None
        manifest, problem = _read_manifest(data)
        if problem and not damaged_is_none:
            raise _damaged(key, problem)
        return manifest

    async def _sweep(self, key: str, kept: set[str]) -> None:
        async for name in self._objects.names(f"{key}/pieces/"):
            if name.rpartition("/")[2] not in kept:
                await self._objects.delete(name)


class _BoundedTasks:
    """Run a limited number of tasks in parallel; the first that fails cancels the others; its exception is raised."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> _BoundedTasks:
        return self

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task once the limit allows it."""
        self._running.add(asyncio.create_task(work))
        await self._wait(self._most - 1)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self._wait(0)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _wait(self, left: int) -> None:
        while len(self._running) > left:
            done, self._running = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()


class _Upload:
    """A save in progress."""

    def __init__(self, objects: Objects, key: str, there: set[str]) -> None:
        self._objects = objects
        self._key = key
        self._there = there
        self._pieces: list[tuple[str, int]] = []
        self._whole = hashlib.sha256()
        self.size = 0
        self.uploaded = 0

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self._pieces]

    def count(self, piece: bytes, limit: int) -> None:
        """Count a piece as the next."""
        self.size += len(piece)
        if self.size > limit:
            facts = {"workspace": self._key, "limit": str(limit)}
            fix = "raise SANDMESH_STORAGE_LIMIT to save it"
            raise TooLarge(
                f"the workspace is larger than the {limit:,} bytes that are saved; {fix}", {**facts, "fix": fix}
            )
        self._whole.update(piece)
        self._pieces.append((hashlib.sha256(piece).hexdigest(), len(piece)))

    async def put(self, piece: bytes) -> None:
        """Upload a piece that the storage does not have yet."""
        name = hashlib.sha256(piece).hexdigest()
        if name not in self._there:
            self._there.add(name)
            self.uploaded += len(piece)
            await self._objects.put(_piece_name(self._key, name), piece)

    def manifest(self, fencing_token: int) -> WorkspaceManifest:
        """Return the manifest of all pieces."""
        return WorkspaceManifest(
            format=FORMAT,
            fencing_token=fencing_token,
            saved=datetime.now(UTC).isoformat(timespec="seconds"),
            size=self.size,
            sha256=self._whole.hexdigest(),
            pieces=tuple(self._pieces),
        )


def _manifest_name(key: str) -> str:
    return f"{key}/manifest.json"


def _piece_name(key: str, name: str) -> str:
    return f"{key}/pieces/{name}"


def _encode_manifest(manifest: WorkspaceManifest) -> bytes:
    body = manifest.model_dump_json().encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _read_manifest(data: bytes) -> tuple[WorkspaceManifest | None, str]:
    """Decode a manifest; return None and the problem where it is damaged."""
    check, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != check:
        return None, "its manifest has another checksum"
    try:
        manifest = WorkspaceManifest.model_validate_json(body)
    except ValidationError:
        return None, f"its manifest is not of format {FORMAT}, the one that this release reads"
    return manifest, ""


def _damaged(key: str, how: str) -> WorkspaceNotReady:
    message = (
        f"the saved workspace {key} is damaged: {how}. Nothing of it was used. Repair the storage's objects, "
        "or remove them to begin with an empty workspace"
    )
    return WorkspaceNotReady(message, {"workspace": key, "detail": how})
