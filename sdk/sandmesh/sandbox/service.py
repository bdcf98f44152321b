"""Sandboxes that users come back to, by the ids of user and session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar, Unpack, cast

from sandmesh._client.connection import acquire, release
from sandmesh._client.messages import read_name, read_seconds
from sandmesh._client.process_state import process
from sandmesh._client.sync import run
from sandmesh.errors import WrongState
from sandmesh.inputs import LifetimeOptions, Options, SandboxType
from sandmesh.sandbox.boxes import BaseSandboxAsync, SandboxAsync
from sandmesh.sandbox.builtin import async_class, sync_class
from sandmesh.sandbox.class_registry import class_registry
from sandmesh.sandbox.session.connected import BoxOpener, ConnectedSessions
from sandmesh.sandbox.session.info import SessionQueries, read_ids
from sandmesh.sandbox.session.lease import Lifetimes
from sandmesh.sandbox.sync import BaseSandbox
from sandmesh.shared.sandbox_types import DEFAULT_TYPE, SANDBOX_TYPES

B = TypeVar("B", BaseSandbox, BaseSandboxAsync)


class SandboxService(SessionQueries):
    """Returns the same sandboxes, with their state, for the same ids, from any process; other users never get them.

    While it is started it renews the sessions that it connected. Stopping it releases nothing: a session ends by
    `release`, or when it was not renewed for the mesh's lease time. Without `base_url` the mesh is found as for a
    box.
    """

    def __init__(
        self,
        base_url: str | None = None,
        bearer_token: str | None = None,
        timeout: float = 3000,
        *,
        ca_cert: str | Path | None = None,
        **lifetimes: Unpack[LifetimeOptions],
    ) -> None:
        """Configure the mesh, as for a box; `timeout` is seconds for each operation.

        Sessions end `ttl` seconds after they were last renewed, sandboxes `idle_timeout` seconds after their last use,
        or they are paused then, as `on_idle` says; the next request resumes them.
        """
        super().__init__((base_url, bearer_token), read_seconds("timeout", timeout), ca_cert)
        self._lifetimes = Lifetimes(**lifetimes)
        self._lifetimes.check()
        self._sessions: ConnectedSessions[BaseSandboxAsync] | None = None
        self._portal_sessions: ConnectedSessions[BaseSandbox] | None = None

    async def start(self) -> None:
        """Connect to the mesh.

        Raises:
            MeshUnavailable: Nothing responds there.
        """
        if self._sessions is None:
            connection = await acquire(*self._address, self._timeout, self._ca_cert)
            opener = self._opener(async_class, lambda box: box, is_async=True)
            self._sessions = ConnectedSessions(connection, self._timeout, self._lifetimes, opener)
        try:
            await self._ask_capacity(self._timeout)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop renewing, and close the boxes that were returned; their sandboxes and sessions stay."""
        sessions, self._sessions = self._sessions, None
        portal_sessions, self._portal_sessions = self._portal_sessions, None
        if sessions is not None:
            await sessions.close()
        if portal_sessions is not None:
            await asyncio.to_thread(process().portal().run, portal_sessions.close())

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop; sessions stay."""
        await self.stop()

    def __enter__(self) -> Self:
        """Start without an event loop: the sync methods then work until the block ends."""
        run("async with SandboxService", self._start_in_portal())
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop; sessions stay."""
        run("async with SandboxService", self._stop_in_portal())

    def connect(
        self,
        session_id: str,
        user_id: str | None = None,
        sandbox_types: Sequence[str | SandboxType] = (DEFAULT_TYPE,),
    ) -> list[BaseSandbox]:
        """Return the session's sandboxes of these types, existing or new, open and ready.

        Without `user_id` the session is the user's named "default".

        Raises:
            WrongState: The service was not started.
            SandmeshError: A sandbox could not be provided.
        """
        ids, types = read_ids(session_id, user_id), _types(sandbox_types)

        async def connect() -> list[BaseSandbox]:
            return await (await self._in_portal()).connect(ids, types)

        return run("SandboxService.connect_async", connect())

    async def connect_async(
        self,
        session_id: str,
        user_id: str | None = None,
        sandbox_types: Sequence[str | SandboxType] = (DEFAULT_TYPE,),
    ) -> list[BaseSandboxAsync]:
        """Return the session's sandboxes of these types, as `connect` does, for this event loop."""
        return await self._started().connect(read_ids(session_id, user_id), _types(sandbox_types))

    def release(self, session_id: str, user_id: str | None = None) -> bool:
        """End a session and its sandboxes; ending it twice changes nothing."""
        ids = read_ids(session_id, user_id)

        async def release_session() -> bool:
            await (await self._in_portal()).release(ids)
            return True

        return run("SandboxService.release_async", release_session())

    async def release_async(self, session_id: str, user_id: str | None = None) -> bool:
        """End a session and its sandboxes; ending it twice changes nothing."""
        await self._started().release(read_ids(session_id, user_id))
        return True

    def release_all(self) -> None:
        """End every session that `connect` returned here and that was not released."""

        async def release_all() -> None:
            await (await self._in_portal()).release_all()

        run("SandboxService.release_all_async", release_all())

    async def release_all_async(self) -> None:
        """End every session that `connect_async` returned here and that was not released."""
        await self._started().release_all()

    async def _start_in_portal(self) -> None:
        await self._open_portal()
        try:
            await self._ask_capacity(self._timeout)
        except BaseException:
            await self._stop_in_portal()
            raise

    async def _stop_in_portal(self) -> None:
        sessions, self._portal_sessions = self._portal_sessions, None
        if sessions is not None:
            await sessions.close()

    async def _in_portal(self) -> ConnectedSessions[BaseSandbox]:
        if self._portal_sessions is None:
            self._started()
        return await self._open_portal()

    async def _open_portal(self) -> ConnectedSessions[BaseSandbox]:
        if self._portal_sessions is None:
            connection = await acquire(*self._address, self._timeout, self._ca_cert)
            if self._portal_sessions is not None:
                await release(connection)
                return self._portal_sessions
            # The portal runs this, where a sync box's own start would wait for itself.
            opener = self._opener(sync_class, lambda box: box.twin)
            self._portal_sessions = ConnectedSessions(connection, self._timeout, self._lifetimes, opener)
        return self._portal_sessions

    def _started(self) -> ConnectedSessions[BaseSandboxAsync]:
        if self._sessions is None:
            raise WrongState("this service was not started: await start() first", {"state": "STOPPED"})
        return self._sessions

    def _variant(self, made: type[B]) -> type[B]:
        """Return the class of the boxes that are returned for a built-in one; it may be a subclass."""
        return made

    def _opener(
        self, builtin: Callable[[str], type[B]], twin: Callable[[B], SandboxAsync], *, is_async: bool = False
    ) -> BoxOpener[B]:
        def make(sandbox_type: str, sandbox_id: str) -> B:
            own = cast("type[B] | None", class_registry().class_of(sandbox_type, is_async=is_async))
            if own is not None and sandbox_type not in SANDBOX_TYPES:
                return own(sandbox_id, self._timeout, *self._address, **_certificates(self._ca_cert))
            made = self._variant(builtin(sandbox_type))
            return made(sandbox_id, self._timeout, *self._address, sandbox_type=sandbox_type, ca_cert=self._ca_cert)

        return BoxOpener(make, twin)


def _certificates(ca_cert: str | Path | None) -> Options:
    # A registered class's own constructor need not know of any option.
    return {} if ca_cert is None else {"ca_cert": ca_cert}


def _types(sandbox_types: Sequence[str | SandboxType]) -> list[str]:
    return [read_name("sandbox_types", name) for name in dict.fromkeys(str(name) for name in sandbox_types)]
