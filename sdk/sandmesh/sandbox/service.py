"""Sandboxes that users come back to, by the ids of user and session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Self, TypeVar, cast

from sandmesh._client.connection import Connection, acquire, release
from sandmesh._client.messages import read_name, read_seconds, write_spec, write_ttl
from sandmesh._client.process_state import process
from sandmesh._client.sync import run
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import SandmeshError, WrongState
from sandmesh.inputs import Options, SandboxType
from sandmesh.sandbox.boxes import BaseSandboxAsync, FilesystemSandboxAsync, SandboxAsync
from sandmesh.sandbox.held_session import HeldSession, Times
from sandmesh.sandbox.registered_classes import registered
from sandmesh.sandbox.sessions import SessionInfo, get_session, list_sessions
from sandmesh.sandbox.sync import BaseSandbox, FilesystemSandbox

B = TypeVar("B")
R = TypeVar("R")
Ids = tuple[str, str]

DEFAULT_USER = "default"
HEALTH_SECONDS = 5.0

_ASYNC: dict[str, type[BaseSandboxAsync]] = {"base": BaseSandboxAsync, "filesystem": FilesystemSandboxAsync}
_SYNC: dict[str, type[BaseSandbox]] = {"base": BaseSandbox, "filesystem": FilesystemSandbox}


@dataclass(frozen=True)
class _Opener(Generic[B]):
    """How a box of a type for a sandbox is made, and which async box does its work."""

    make: Callable[[str, str], B]
    twin: Callable[[B], SandboxAsync]


@dataclass
class _Entry(Generic[B]):
    """One session that is held, and the boxes that were given out for it, by type."""

    held: HeldSession
    boxes: dict[str, B] = field(default_factory=dict[str, B])


class _Sessions(Generic[B]):
    """The sessions that one event loop holds."""

    def __init__(self, connection: Connection, timeout: float, times: Times, opener: _Opener[B]) -> None:
        self._connection = connection
        self._timeout = timeout
        self._times = times
        self._opener = opener
        self._entries: dict[Ids, _Entry[B]] = {}
        self._lock = asyncio.Lock()

    async def connect(self, ids: Ids, types: Sequence[str]) -> list[B]:
        async with self._lock:
            entry = self._entries.get(ids) or _Entry[B](HeldSession(self._connection, *ids, self._times))
            slots = [session_pb2.SlotSpec(spec=write_spec(kind, {})) for kind in types]
            session = await entry.held.connect(slots, self._timeout)
            self._entries[ids] = entry
            for kind in types:
                await self._renew(entry, kind, session.sandboxes[kind].sandbox_id)
            return [entry.boxes[kind] for kind in types]

    async def release(self, ids: Ids) -> None:
        async with self._lock:
            await self._release(ids)

    async def release_all(self) -> None:
        async with self._lock:
            for ids in list(self._entries):
                await self._release(ids)

    async def _release(self, ids: Ids) -> None:
        entry = self._entries.pop(ids, None) or _Entry[B](HeldSession(self._connection, *ids, self._times))
        await self._close_boxes(entry)
        await entry.held.release(self._timeout)

    async def close(self) -> None:
        async with self._lock:
            for entry in self._entries.values():
                await entry.held.drop()
                await self._close_boxes(entry)
            self._entries.clear()
        await release(self._connection)

    async def _renew(self, entry: _Entry[B], kind: str, sandbox_id: str) -> None:
        # The same ids give the same box, unless its sandbox was lost and replaced or the box was closed.
        box = entry.boxes.get(kind)
        twin = None if box is None else self._opener.twin(box)
        if twin is None or not twin.is_open or twin.sandbox_id != sandbox_id:
            entry.boxes[kind] = box = self._opener.make(kind, sandbox_id)
            await self._opener.twin(box).start()

    async def _close_boxes(self, entry: _Entry[B]) -> None:
        for box in entry.boxes.values():
            await self._opener.twin(box).close()


class SandboxService:
    """Gives the same sandboxes, with their state, for the same ids, from any process; another user never gets them.

    While it is started it renews the sessions that it connected. Stopping it releases nothing: a session ends by
    `release`, or when nobody renewed it for the mesh's lease time. Without `base_url` the mesh is found as for a box.
    """

    def __init__(
        self,
        base_url: str | None = None,
        bearer_token: str | None = None,
        timeout: float = 3000,
        *,
        ttl: float | None = None,
        idle_timeout: float | None = None,
        ca_cert: str | Path | None = None,
    ) -> None:
        """Say which mesh is meant, as for a box; `timeout` is seconds for each operation.

        Sessions end `ttl` seconds after they were last renewed, sandboxes `idle_timeout` seconds after their last use.
        """
        self._address = (base_url, bearer_token)
        self._ca_cert = ca_cert
        write_ttl(ttl)
        write_ttl(idle_timeout, "idle_timeout")
        self._times = Times(ttl, idle_timeout)
        self._timeout = read_seconds("timeout", timeout)
        self._started = False
        self._here: _Sessions[BaseSandboxAsync] | None = None
        self._portal: _Sessions[BaseSandbox] | None = None

    async def start(self) -> None:
        """Reach the mesh.

        Raises:
            MeshUnavailable: Nothing answers there.
        """
        if not self._started:
            connection = await acquire(*self._address, self._timeout, self._ca_cert)
            self._here = _Sessions(connection, self._timeout, self._times, _Opener(self._make_async, lambda box: box))
            self._started = True
        try:
            await self._ask_capacity(self._timeout)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop renewing, and close the boxes that were given out; their sandboxes and sessions stay."""
        self._started = False
        here, self._here = self._here, None
        portal, self._portal = self._portal, None
        if here is not None:
            await here.close()
        if portal is not None:
            await asyncio.to_thread(process().portal().run, portal.close())

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop; sessions stay."""
        await self.stop()

    def __enter__(self) -> Self:
        """Start for a program without an event loop: `connect` and the other methods that wait are there then."""
        run("async with SandboxService", self._start_in_portal())
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop; sessions stay."""
        run("async with SandboxService", self._stop_in_portal())

    async def health(self) -> bool:
        """Say whether the mesh answers."""
        try:
            await self._ask_capacity(min(self._timeout, HEALTH_SECONDS))
        except SandmeshError:
            return False
        return True

    def connect(
        self, session_id: str, user_id: str | None = None, sandbox_types: Sequence[str | SandboxType] = ("base",)
    ) -> list[BaseSandbox]:
        """Give the session's sandboxes of these types, those it has or new ones, open and ready.

        Without `user_id` the session is the user's named "default".

        Raises:
            WrongState: The service was not started.
            SandmeshError: A sandbox could not be had.
        """
        ids = _ids(session_id, user_id)
        return run("SandboxService.connect_async", self._connect_in_portal(ids, _types(sandbox_types)))

    def release(self, session_id: str, user_id: str | None = None) -> bool:
        """End a session and its sandboxes; one that is gone is released too."""
        return run("SandboxService.release_async", self._release_in_portal(_ids(session_id, user_id)))

    async def connect_async(
        self, session_id: str, user_id: str | None = None, sandbox_types: Sequence[str | SandboxType] = ("base",)
    ) -> list[BaseSandboxAsync]:
        """Give what `connect` does, as sandboxes for this event loop."""
        return await self._sessions().connect(_ids(session_id, user_id), _types(sandbox_types))

    async def release_async(self, session_id: str, user_id: str | None = None) -> bool:
        """End a session and its sandboxes; one that is gone is released too."""
        await self._sessions().release(_ids(session_id, user_id))
        return True

    def list_sessions(self, user_id: str | None = None) -> list[SessionInfo]:
        """Give a user's sessions, by key, whoever connected them; the service need not be started for it."""
        return run("SandboxService.list_sessions_async", self.list_sessions_async(user_id))

    async def list_sessions_async(self, user_id: str | None = None) -> list[SessionInfo]:
        """Give a user's sessions, by key, whoever connected them; the service need not be started for it."""
        owner = _user(user_id)
        return await self._asked(lambda connection: list_sessions(connection, owner, self._timeout))

    def get_session(self, session_id: str, user_id: str | None = None) -> SessionInfo:
        """Give a session with its sandboxes' ids; the service need not be started for it.

        Raises:
            SessionNotFound: The user has none of that name.
        """
        return run("SandboxService.get_session_async", self.get_session_async(session_id, user_id))

    async def get_session_async(self, session_id: str, user_id: str | None = None) -> SessionInfo:
        """Give a session with its sandboxes' ids; the service need not be started for it.

        Raises:
            SessionNotFound: The user has none of that name.
        """
        owner, name = _ids(session_id, user_id)
        return await self._asked(lambda connection: get_session(connection, owner, name, self._timeout))

    def release_all(self) -> None:
        """End every session that `connect` gave out here and that was not released."""
        run("SandboxService.release_all_async", self._release_all_in_portal())

    async def release_all_async(self) -> None:
        """End every session that `connect_async` gave out here and that was not released."""
        await self._sessions().release_all()

    async def _connect_in_portal(self, ids: Ids, types: Sequence[str]) -> list[BaseSandbox]:
        return await (await self._portal_sessions()).connect(ids, types)

    async def _release_in_portal(self, ids: Ids) -> bool:
        await (await self._portal_sessions()).release(ids)
        return True

    async def _release_all_in_portal(self) -> None:
        await (await self._portal_sessions()).release_all()

    async def _start_in_portal(self) -> None:
        await self._open_portal()
        try:
            await self._ask_capacity(self._timeout)
        except BaseException:
            await self._stop_in_portal()
            raise

    async def _stop_in_portal(self) -> None:
        portal, self._portal = self._portal, None
        if portal is not None:
            await portal.close()

    async def _portal_sessions(self) -> _Sessions[BaseSandbox]:
        if self._portal is None:
            self._sessions()
        return await self._open_portal()

    async def _open_portal(self) -> _Sessions[BaseSandbox]:
        if self._portal is None:
            connection = await acquire(*self._address, self._timeout, self._ca_cert)
            if self._portal is not None:
                await release(connection)
                return self._portal
            # The portal runs this, where a sync box's own start would wait for itself.
            opener = _Opener(self._make_sync, lambda box: box.twin)
            self._portal = _Sessions(connection, self._timeout, self._times, opener)
        return self._portal

    def _sessions(self) -> _Sessions[BaseSandboxAsync]:
        if self._here is None:
            raise WrongState("this service was not started: await start() first", {"state": "STOPPED"})
        return self._here

    def _make_async(self, kind: str, sandbox_id: str) -> BaseSandboxAsync:
        own = cast("type[BaseSandboxAsync] | None", registered().class_of(kind, is_async=True))
        if own is not None and kind not in _ASYNC:
            return own(sandbox_id, self._timeout, *self._address, **self._certificates())
        return _ASYNC.get(kind, BaseSandboxAsync)(
            sandbox_id, self._timeout, *self._address, sandbox_type=kind, ca_cert=self._ca_cert
        )

    def _make_sync(self, kind: str, sandbox_id: str) -> BaseSandbox:
        own = cast("type[BaseSandbox] | None", registered().class_of(kind))
        if own is not None and kind not in _SYNC:
            return own(sandbox_id, self._timeout, *self._address, **self._certificates())
        return _SYNC.get(kind, BaseSandbox)(
            sandbox_id, self._timeout, *self._address, sandbox_type=kind, ca_cert=self._ca_cert
        )

    def _certificates(self) -> Options:
        # A registered class's own constructor need not know of any option.
        return {} if self._ca_cert is None else {"ca_cert": self._ca_cert}

    async def _ask_capacity(self, timeout: float) -> None:
        request = sandbox_pb2.GetCapacityRequest()
        await self._asked(lambda here: here.ask(lambda stubs: stubs.sandboxes.GetCapacity, request, timeout), timeout)

    async def _asked(self, question: Callable[[Connection], Awaitable[R]], timeout: float | None = None) -> R:
        connection = await acquire(*self._address, timeout or self._timeout, self._ca_cert)
        try:
            return await question(connection)
        finally:
            await release(connection)


def _user(user_id: str | None) -> str:
    return read_name("user_id", DEFAULT_USER if user_id is None else user_id)


def _ids(session_id: str, user_id: str | None) -> Ids:
    return _user(user_id), read_name("session_id", session_id)


def _types(sandbox_types: Sequence[str | SandboxType]) -> list[str]:
    return [read_name("sandbox_types", kind) for kind in dict.fromkeys(str(kind) for kind in sandbox_types)]
