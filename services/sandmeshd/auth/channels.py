"""Channels between services of one mesh."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import grpc

from sandmesh.errors import InvalidArgument
from sandmeshd.auth.service_identity import Identities, signing_interceptors
from sandmeshd.runtime.rpc.failover import failover
from sandmeshd.runtime.rpc.observation import correlation_interceptors
from sandmeshd.runtime.rpc.server import OPTIONS, target

_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Without it an unanswered ping ends a connection after a minute, whatever the other says.
    ("grpc.http2.ping_timeout_ms", 5_000),
]
"""A service that hangs is left after these: what may be repeated then goes to the next one, within a call's wait."""


@asynccontextmanager
async def open_channel(address: str, identities: Identities | None = None) -> AsyncGenerator[grpc.aio.Channel]:
    """Open a channel to a service; it connects at the first call and again whenever it broke.

    With `identities` each RPC says, signed, who it is for.
    """
    # Without it two channels to one address share a connection, and one's end is the other's.
    options = [*OPTIONS, *_KEEPALIVE, ("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100)]
    options.append(("grpc.max_reconnect_backoff_ms", 1_000))
    # A proxy of the environment is for other addresses than those of the mesh's own services.
    options.append(("grpc.enable_http_proxy", 0))
    # Also how long a connection may take: a host that is gone says nothing.
    options.append(("grpc.min_reconnect_backoff_ms", 2_000))
    interceptors = [*(signing_interceptors(identities) if identities else ()), *correlation_interceptors()]
    channel = grpc.aio.insecure_channel(target(address), options=options, interceptors=interceptors)
    try:
        yield channel
    finally:
        await channel.close()


@asynccontextmanager
async def open_channels(
    addresses: Sequence[str], identities: Identities | None = None
) -> AsyncGenerator[grpc.aio.Channel]:
    """Open one channel to several servers of a service: where the one in use does not answer, the next is asked.

    Raises:
        InvalidArgument: There is no address.
    """
    if not addresses:
        raise InvalidArgument("a service needs at least one address")
    async with AsyncExitStack() as stack:
        yield failover([await stack.enter_async_context(open_channel(address, identities)) for address in addresses])
