"""Serves HTTP with aiohttp: what is said about health, and the pages that others add."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sandmesh.errors import MeshUnavailable
from sandmesh.shared.numbers import decimal
from sandmeshd.runtime.addresses import is_open
from sandmeshd.runtime.http.door import ConnectionListener
from sandmeshd.runtime.http.listener import Certificate, HttpAddresses, Pages
from sandmeshd.runtime.http.traces import traced_request

# Requests under way at the end get so long.
GRACE_SECONDS = 0.5
CONNECTION: Final[dict[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,  # what is carried on stays as it is
    "max_line_size": 64 << 10,
    "max_field_size": 64 << 10,
}
log = logging.getLogger("aiohttp.server")


def _without_traceback(record: logging.LogRecord) -> bool:
    """Log one line where bytes are not HTTP/1, as those of a gRPC client: a traceback would hold the bytes."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = "what %s sent is not valid HTTP/1: gRPC clients connect to the mesh's base_url"
        record.exc_info = None
    return True


@asynccontextmanager
async def open_http(
    addresses: HttpAddresses, pages: Sequence[Pages], certificate: Certificate | None
) -> AsyncGenerator[tuple[str, ...]]:
    """Serve `/healthz` and the pages at addresses (host:port; port 0 takes a free one) until the block ends.

    Yields them as URLs, with the ports that were chosen.

    Raises:
        MeshUnavailable: An address cannot be listened at.
    """
    log.addFilter(_without_traceback)
    application = web.Application(middlewares=[traced_request])
    application.router.add_get("/healthz", _health)
    for add in pages:
        add(application)
    # Who went away is not worked for.
    runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=GRACE_SECONDS, handler_cancellation=True)
    await runner.setup()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        yield tuple([_listen(stack, runner, addresses, address, certificate) for address in addresses.listen])


def _listen(
    stack: AsyncExitStack,
    runner: web.AppRunner,
    addresses: HttpAddresses,
    address: str,
    certificate: Certificate | None,
) -> str:
    """Listen at an address until the stack closes, and return its URL."""
    host, _, port = address.rpartition(":")
    secured = certificate is not None and (addresses.always_tls or is_open(address))
    tls = _context(certificate) if certificate is not None and secured else None
    if tls is not None and addresses.always_tls:
        tls.set_alpn_protocols(["h2", "http/1.1"])
    first, last = addresses.ports if addresses.ports is not None and port == "0" else (port, port)
    door = ConnectionListener(cast("web.Server", runner.server), CONNECTION, tls, addresses.grpc)
    failure: Exception | None = None
    numbers = decimal(str(first), 65_535), decimal(str(last), 65_535)
    for one in range(numbers[0], numbers[1] + 1) if numbers[0] is not None and numbers[1] is not None else ():
        try:
            bound = door.listen(host.strip("[]"), one, shared=addresses.shared)
        except OSError as error:
            failure = error
        else:
            stack.push_async_callback(door.close)
            return f"{'http' if tls is None else 'https'}://{_written(bound)}"
    reason = failure or "port must be a number up to 65535"
    message = f"cannot listen at {address} for HTTP: {reason}; free it or choose another address"
    raise MeshUnavailable(message, {"address": address})


def _context(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.chain, certificate.key)
    return context


def _written(bound: tuple[str, int]) -> str:
    host, port = bound
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _health(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")
