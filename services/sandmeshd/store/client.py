"""A small, typed client of the store: scripts by name, and the few plain reads that need none."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import structlog
from redis import exceptions
from redis.asyncio import Redis

from sandmesh.errors import Recovering, StoreUnavailable
from sandmeshd.store.disk_space import DiskSpace
from sandmeshd.store.fast_connection import CommandRunner
from sandmeshd.store.notifications import Notifications
from sandmeshd.store.script_loader import load_scripts

log = structlog.get_logger()

_NO_ANSWER = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
)
# MISCONF: the server cannot write its data; CLUSTERDOWN, LOADING, TRYAGAIN: it is not ready.
_NOT_NOW = ("MISCONF", "CLUSTERDOWN", "LOADING", "TRYAGAIN", "MASTERDOWN")
_WRITE_FIX = "check its server's log: its disk or memory may be full, or it may be a replica of another"


class Store:
    """One mesh's data: every key begins with `prefix`, which carries the mesh's hash tag."""

    def __init__(
        self, client: Redis, mesh_id: str, notifications: Notifications, disk: DiskSpace | None = None
    ) -> None:
        self._client = client
        self._commands = CommandRunner(client)
        self.disk = disk
        """The space on its disk, where that is known: of the mesh's own server."""
        self._scripts = load_scripts()
        self._errors = _StoreErrors(self)
        self.mesh_id = mesh_id
        self.prefix = prefix_of(mesh_id)
        self.notifications = notifications
        self.generation = ""
        """The name of this data: another one means that the store came back empty."""
        self.is_open = False
        """Whether the records are there, as of the last `refresh_generation`."""
        self.round_trips: Counter[str] = Counter()
        """Commands sent so far, by script or command: what tests count."""

    def key(self, *parts: str) -> str:
        """Return the full name of a key."""
        return ":".join((self.prefix, *parts))

    async def run(self, name: str, arguments: Mapping[str, object], *blobs: bytes) -> list[Any]:
        """Run a script atomically; `arguments` pass as JSON, `blobs` as they are.

        Strings in the result are bytes. Every script may be sent twice, since a connection may break after it ran.

        Raises:
            StoreUnavailable: The store does not answer, or cannot write.
            Recovering: It came back empty, and its records are being rebuilt.
        """
        try:
            return await self._run(name, arguments, *blobs)
        except Recovering:
            await self.refresh_generation()
            if not self.is_open:
                raise
            return await self._run(name, arguments, *blobs)

    async def refresh_generation(self) -> None:
        """Read the generation of this data, which is named where it is new, and whether it is open."""
        name, is_open = await self._run("generation", {"proposed": secrets.token_hex(8)})
        self.generation, self.is_open = name.decode(), bool(is_open)

    async def _run(self, name: str, arguments: Mapping[str, object], *blobs: bytes) -> list[Any]:
        script = self._scripts[name]
        encoded = json.dumps({**arguments, "generation": self.generation})
        parameters: tuple[str | int | bytes, ...] = (1, self.prefix, encoded, *blobs)
        with self._errors:
            try:
                return cast("list[Any]", await self._execute(name, "EVALSHA", script.sha, *parameters))
            except exceptions.NoScriptError:
                return cast("list[Any]", await self._execute(name, "EVAL", script.source, *parameters))

    async def hash(self, *parts: str) -> dict[str, bytes]:
        """Read a whole hash; one that does not exist is empty."""
        with self._errors:
            flat = cast("list[bytes]", await self._execute("hash", "HGETALL", self.key(*parts)))
        return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}

    async def keys(self) -> list[str]:
        """List the mesh's keys, sorted: for tests and diagnosis, since it reads them all."""
        with self._errors:
            # redis-py leaves scan_iter's items untyped.
            scan = cast("Any", self._client).scan_iter(match=f"{self.prefix}:*", count=1000)
            return sorted([str(name.decode()) async for name in scan])

    async def server_info(self, section: str) -> dict[str, str]:
        """Read a section of what the server reports about itself.

        Raises:
            ResponseError: It does not tell.
        """
        with self._errors:
            text = cast("bytes", await self._execute("info", "INFO", section)).decode()
        pairs = (line.partition(":") for line in text.splitlines() if ":" in line and not line.startswith("#"))
        return {name: value.strip() for name, _, value in pairs}

    async def ping(self) -> None:
        """Return when the store answers.

        Raises:
            StoreUnavailable: It does not.
        """
        with self._errors:
            await self._execute("ping", "PING")

    async def _execute(self, name: str, *arguments: str | int | bytes) -> object:
        self.round_trips[name] += 1
        task, began = asyncio.current_task(), time.monotonic()
        cancelled = task.cancelling() if task else 0
        try:
            return await self._commands.execute(*arguments)
        finally:
            log.debug("the store answered", script=name, seconds=round(time.monotonic() - began, 6))
            # redis-py can swallow a cancellation while it connects; the caller must be cancelled all the same.
            if task is not None and task.cancelling() > cancelled:
                raise asyncio.CancelledError


class _StoreErrors:
    """Raises what a command failed with as an error of the mesh; without state, so that one serves all commands."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Translate the exception that leaves the block."""
        if isinstance(error, (*_NO_ANSWER, OSError)):
            raise _translated(error, self._store.disk) from error
        if isinstance(error, exceptions.ResponseError):
            if str(error).startswith("RECOVERING"):
                raise _recovering() from None
            if str(error).startswith(_NOT_NOW):
                raise _translated(error, self._store.disk) from error


def prefix_of(mesh_id: str) -> str:
    """Return the prefix of every key of a mesh."""
    return f"sandmesh:{{{mesh_id}}}"


def _translated(error: Exception, disk: DiskSpace | None) -> StoreUnavailable:
    shortage = disk.shortage() if disk else ""
    if disk and shortage:
        return _cannot_write(shortage, disk.fix)
    detail = str(error)
    if isinstance(error, (exceptions.ReadOnlyError, exceptions.OutOfMemoryError)) or detail.startswith("MISCONF"):
        return _cannot_write(detail, _WRITE_FIX)
    message = f"the store does not answer: {detail}; check that its server runs, then try again"
    return StoreUnavailable(message, {"detail": detail}, retry_after=1.0)


def _cannot_write(detail: str, fix: str) -> StoreUnavailable:
    message = f"the store cannot write: {detail}; {fix}"
    return StoreUnavailable(message, {"detail": detail, "fix": fix}, retry_after=1.0)


def _recovering() -> Recovering:
    message = "the store came back empty, and the records are being rebuilt from the sandboxes: try again in a moment"
    return Recovering(message, retry_after=0.2)
