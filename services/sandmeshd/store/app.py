"""The composition root of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from sandmesh.errors import StoreUnavailable
from sandmeshd.store.client import Store, prefix_of
from sandmeshd.store.damaged_files import FIX
from sandmeshd.store.embedded import EmbeddedServer, open_embedded
from sandmeshd.store.fast_connection import fast_connection
from sandmeshd.store.notifications import Notifications
from sandmeshd.store.server_risks import check_server
from sandmeshd.store.settings import StoreSettings

log = structlog.get_logger()

_READY_POLL_SECONDS = 0.005


@asynccontextmanager
async def open_store(settings: StoreSettings) -> AsyncGenerator[Store]:
    """Connect to the store; start the mesh's own server where there is no URL and none runs yet.

    Raises:
        StoreUnavailable: It does not answer in time.
        RuntimeUnavailable: The mesh's own server cannot be run here, or an external one evicts records.
    """
    async with AsyncExitStack() as stack:
        server = await _open_server(settings, stack)
        client = _connect(settings)
        stack.push_async_callback(client.aclose)
        notifications = Notifications(client, f"{prefix_of(settings.mesh_id)}:notices")
        store = Store(client, settings.mesh_id, notifications, server.disk if server else None)
        await _wait_ready(store, settings, server)
        if server is None:
            for risk in await check_server(store):
                log.warning("the store's server may lose data", detail=risk.detail, fix=risk.fix)
        await store.refresh_generation()
        stack.push_async_callback(_cancel, asyncio.create_task(notifications.listen()))
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
        # Waiting for a connection means waiting for other commands, each of which has its own timeout.
        timeout=settings.command_timeout_seconds * 4,
        socket_timeout=settings.command_timeout_seconds,
        socket_connect_timeout=settings.command_timeout_seconds,
        retry=Retry(ExponentialBackoff(cap=0.2, base=0.01), 2),
        protocol=2,
    )
    pool.connection_class = fast_connection(pool.connection_class)
    return cast("Any", Redis).from_pool(pool)  # type: ignore[no-any-return]  # untyped above


def _unix_url(socket: Path | None) -> str:
    return f"unix://{socket}"


async def _wait_ready(store: Store, settings: StoreSettings, server: EmbeddedServer | None) -> None:
    # Only our own server is waited for: a wrong URL fails immediately.
    try:
        async with asyncio.timeout(settings.start_timeout_seconds):
            while not await _answers(store, retry=server is not None):
                if server is not None and server.damage:
                    raise _damaged(server.damage)
                await asyncio.sleep(_READY_POLL_SECONDS)
    except TimeoutError:
        raise _silent(settings, server) from None


def _damaged(detail: str) -> StoreUnavailable:
    return StoreUnavailable(f"the store's files are damaged: {detail}; {FIX}", {"detail": detail, "fix": FIX})


def _silent(settings: StoreSettings, server: EmbeddedServer | None) -> StoreUnavailable:
    message = f"the store does not answer within {settings.start_timeout_seconds} s"
    shortage = server.disk.shortage() if server else ""
    if server and shortage:
        fix = f"free space on the disk of {server.disk.directory}, and start again"
        return StoreUnavailable(f"{message}: {shortage}; {fix}", {"detail": shortage, "fix": fix}, retry_after=1.0)
    log_tail = server.log_tail() if server else ""
    return StoreUnavailable(f"{message}: {log_tail}", {"detail": log_tail}, retry_after=1.0)


async def _answers(store: Store, retry: bool) -> bool:
    try:
        await store.ping()
    except StoreUnavailable:
        if not retry:
            raise
        return False
    return True


async def _cancel(task: asyncio.Task[None]) -> None:
    # redis-py swallows a cancellation that meets it while it connects: it is repeated until it holds.
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.05)
