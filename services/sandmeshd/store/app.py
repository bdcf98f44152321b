"""Opens a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from sandmesh.errors import StoreUnavailable
from sandmeshd.store.client import Store, prefix_of
from sandmeshd.store.embedded import EmbeddedServer, open_embedded
from sandmeshd.store.fast_connection import prompt
from sandmeshd.store.notices import Notices
from sandmeshd.store.settings import StoreSettings

_READY_POLL_SECONDS = 0.005


@asynccontextmanager
async def open_store(settings: StoreSettings) -> AsyncGenerator[Store]:
    """Connect to the store, starting the mesh's own server where no URL is given and none runs yet.

    Raises:
        StoreUnavailable: It does not answer in time.
        RuntimeUnavailable: The mesh's own server cannot be run here.
    """
    async with AsyncExitStack() as stack:
        server = await _open_server(settings, stack)
        client = _connect(settings)
        stack.push_async_callback(client.aclose)
        notices = Notices(client, f"{prefix_of(settings.mesh_id)}:notices")
        store = Store(client, settings.mesh_id, notices, server.room if server else None)
        await _wait_ready(store, settings, server)
        await store.learn()
        stack.push_async_callback(_cancel, asyncio.create_task(notices.listen()))
        yield store


async def _open_server(settings: StoreSettings, stack: AsyncExitStack) -> EmbeddedServer | None:
    if settings.directory is None or settings.socket is None:
        return None
    durable = settings.outlives_machine
    opened = open_embedded(settings.directory, settings.socket, settings.takeover_seconds, outlives_machine=durable)
    return await stack.enter_async_context(opened)


def _connect(settings: StoreSettings) -> Redis:
    url = settings.url.get_secret_value() if settings.url else _unix_url(settings.socket)
    # redis-py's own signatures are partly untyped.
    pool: Any = cast("Any", BlockingConnectionPool).from_url(
        url,
        max_connections=settings.connections + 1,
        # Who waits for a connection waits for others' commands, each of which may take its own time.
        timeout=settings.command_timeout_seconds * 4,
        socket_timeout=settings.command_timeout_seconds,
        socket_connect_timeout=settings.command_timeout_seconds,
        retry=Retry(ExponentialBackoff(cap=0.2, base=0.01), 2),
        protocol=2,
    )
    pool.connection_class = prompt(pool.connection_class)
    return cast("Any", Redis).from_pool(pool)  # type: ignore[no-any-return]  # untyped above


def _unix_url(socket: Path | None) -> str:
    return f"unix://{socket}"


async def _wait_ready(store: Store, settings: StoreSettings, server: EmbeddedServer | None) -> None:
    # Only a server of our own is waited for: a wrong URL is told at once.
    try:
        async with asyncio.timeout(settings.start_timeout_seconds):
            while not await _answers(store, patient=server is not None):  # noqa: ASYNC110 - the server tells nobody when it is ready
                await asyncio.sleep(_READY_POLL_SECONDS)
    except TimeoutError:
        raise _silent(settings, server) from None


def _silent(settings: StoreSettings, server: EmbeddedServer | None) -> StoreUnavailable:
    said = f"the store does not answer within {settings.start_timeout_seconds} s"
    lacking = server.room.lacking() if server else ""
    if server and lacking:
        fix = f"free space on the disk of {server.room.directory}, and start again"
        return StoreUnavailable(f"{said}: {lacking}; {fix}", {"detail": lacking, "fix": fix}, retry_after=1.0)
    words = server.last_words() if server else ""
    return StoreUnavailable(f"{said}: {words}", {"detail": words}, retry_after=1.0)


async def _answers(store: Store, patient: bool) -> bool:
    try:
        await store.ping()
    except StoreUnavailable:
        if not patient:
            raise
        return False
    return True


async def _cancel(task: asyncio.Task[None]) -> None:
    # redis-py swallows a cancellation that meets it while it connects: it is repeated until it holds.
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.05)
