"""Serves MCP clients over HTTP, by the protocol's streamable transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import uvicorn

from sandmesh.errors import InvalidArgument
from sandmeshd.facades.mcp.addresses import Names, bind, check_addresses, token_required, written
from sandmeshd.facades.mcp.http_guard import PATH, Door
from sandmeshd.facades.mcp.sessions import HttpSessions
from sandmeshd.facades.mcp.settings import AdapterSettings, HttpSettings

GRACE_SECONDS = 1


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


@asynccontextmanager
async def open_http_adapter(adapter: AdapterSettings, http: HttpSettings) -> AsyncGenerator[tuple[str, ...]]:
    """Serve until the block ends, which ends all sessions with their sandboxes. Yields the URLs.

    Raises:
        InvalidArgument: An address is open to others without what protects it, or a certificate cannot be used.
        MeshUnavailable: An address cannot be listened at.
    """
    check_addresses(http)
    with ExitStack() as stack:
        sockets = [stack.enter_context(bind(address)) for address in http.listen]
        bound = [written(one) for one in sockets]
        sessions = HttpSessions(adapter, http)
        door = Door(adapter, sessions, Names(http, bound), token_required=token_required(http))
        server = _Server(_configuration(door, http))
        serving = asyncio.create_task(server.serve(sockets), name="sandmesh-mcp-http")
        scheme = "http" if http.tls_cert is None else "https"
        try:
            yield tuple(f"{scheme}://{address}{PATH}" for address in bound)
        finally:
            server.should_exit = True
            await sessions.close()
            await serving


def _configuration(door: Door, http: HttpSettings) -> uvicorn.Config:
    configuration = uvicorn.Config(
        door,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=http.tls_cert,
        ssl_keyfile=http.tls_key,
    )
    try:
        configuration.load()
    except OSError as error:
        raise InvalidArgument(f"the certificate {http.tls_cert} or its key cannot be used: {error}") from None
    return configuration
