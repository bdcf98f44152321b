"""Serves HTTP with aiohttp: what is said about health, and the pages that others add."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from sandmesh.errors import MeshUnavailable
from sandmeshd.gateway.http.door import Pages

# Requests under way at the end get so long.
GRACE_SECONDS = 0.5


@asynccontextmanager
async def open_http(addresses: Sequence[str], pages: Sequence[Pages]) -> AsyncGenerator[tuple[str, ...]]:
    """Serve `/healthz` and the pages at the addresses (host:port; port 0 takes a free one) until the block ends.

    Yields them with the ports that were chosen.

    Raises:
        MeshUnavailable: An address cannot be listened at.
    """
    application = web.Application()
    application.router.add_get("/healthz", _health)
    for add in pages:
        add(application)
    runner = web.AppRunner(
        application, access_log=None, handle_signals=False, shutdown_timeout=GRACE_SECONDS, auto_decompress=False
    )
    await runner.setup()
    try:
        for address in addresses:
            await _listen(runner, address)
        yield tuple(_written(bound) for bound in runner.addresses)
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    except (OSError, ValueError) as error:
        message = f"cannot listen at {address} for HTTP: {error}; free it or choose another address"
        raise MeshUnavailable(message, {"address": address}) from None


def _written(bound: tuple[str, int]) -> str:
    host, port = bound[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _health(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")
