"""A gRPC server with what every service of a mesh has: errors as statuses, health, reflection, a quiet end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from sandmesh.errors import MeshUnavailable
from sandmeshd.runtime.processes.descriptors import PEERS_PART, connections_allowed
from sandmeshd.runtime.rpc.interceptors import Around, AroundInterceptor, errors_as_status, nested
from sandmeshd.runtime.rpc.peer_limit import limited_peers
from sandmeshd.runtime.rpc.tls import ServerTls

# 64 KiB of events fit many times; arguments and results pass in chunks of at most 1 MiB.
MESSAGE_BYTES = 8 * 1024 * 1024
OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients ask every few seconds whether the connection lives, and so does the server.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
]
KEEPALIVE: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
]
_WAITING: list[tuple[str, int]] = [
    # Of more than a thousand simultaneous requests gRPC drops some unless it is told otherwise.
    ("grpc.server.max_pending_requests", 16_384),
    ("grpc.server.max_pending_requests_hard_limit", 32_768),
]
HANDSHAKE_SECONDS = 10
IDLE_SECONDS = 1800


@dataclass(frozen=True)
class ServiceRegistration:
    """One service of a server: its full name and what adds it."""

    name: str
    add: Callable[[grpc.aio.Server], None]


@dataclass(frozen=True)
class Listening:
    """Servers that listen: their addresses as clients dial them, with the ports that were chosen."""

    addresses: tuple[str, ...]


def target(address: str) -> str:
    """Turn an address (unix:///path, grpc://host:port, host:port) into what gRPC dials."""
    if address.startswith("unix://"):
        return "unix:" + address.removeprefix("unix://")
    return address.removeprefix("grpc://").removeprefix("http://")


@asynccontextmanager
async def open_server(
    addresses: Sequence[str],
    services: Sequence[ServiceRegistration],
    arounds: Sequence[Around] = (),
    grace: float = 0.5,
    tls: ServerTls | None = None,
    share_ports: bool = False,
) -> AsyncGenerator[Listening]:
    """Serve the services at the addresses until the block ends.

    Each is unix:///path or host:port, where port 0 takes a free one. `arounds` run inside the one that turns
    exceptions into statuses. RPCs under way at the end get `grace` seconds. With `tls` it is spoken at host:port.
    With `share_ports` other processes may listen at the same ports.

    Raises:
        InvalidArgument: The certificate or its key cannot be used.
        MeshUnavailable: An address cannot be listened at.
    """
    around = nested((errors_as_status, *arounds))
    local = {number: address for number, address in enumerate(addresses) if address.startswith("unix://")}
    remote = {number: address for number, address in enumerate(addresses) if number not in local}
    bound: dict[int, str] = {}
    async with AsyncExitStack() as stack:
        stack.callback(_unlink, local.values())
        for group, options in ((local, _WAITING), (remote, [*_WAITING, *_limits(share_ports)])):
            if group:
                server = grpc.aio.server(
                    interceptors=[AroundInterceptor(around)], options=[*OPTIONS, *KEEPALIVE, *options]
                )
                await stack.enter_async_context(_serving(server, services, grace))
                bound |= {number: _listen(server, address, tls) for number, address in group.items()}
                await server.start()
        if remote:
            ports = {int(bound[number].rpartition(":")[2]) for number in remote}
            await stack.enter_async_context(limited_peers(ports, connections_allowed() // PEERS_PART))
        yield Listening(tuple(bound[number] for number in sorted(bound)))


def _limits(share_ports: bool) -> list[tuple[str, int]]:
    """Return the options of addresses that strangers may reach; a unix socket is the mesh's own user's."""
    return [
        ("grpc.so_reuseport", int(share_ports)),
        ("grpc.max_allowed_incoming_connections", connections_allowed()),
        # Also until a client's first words.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
        ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
    ]


@asynccontextmanager
async def _serving(
    server: grpc.aio.Server, services: Sequence[ServiceRegistration], grace: float
) -> AsyncGenerator[None]:
    for service in services:
        service.add(server)
    health = await _add_standard(server, [service.name for service in services])
    try:
        yield
    finally:
        await health.enter_graceful_shutdown()
        await server.stop(grace)


async def _add_standard(server: grpc.aio.Server, names: Sequence[str]) -> health_aio.HealthServicer:
    health = health_aio.HealthServicer()
    for name in ("", *names):
        await health.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    listed = (*names, "grpc.health.v1.Health", reflection.SERVICE_NAME)
    reflection.enable_server_reflection(listed, server, cast("descriptor_pool.DescriptorPool", _ReflectedPool()))
    return health


class _ReflectedPool:
    """The descriptors of this process; unlike protobuf's own pool it finds the file of a service's method too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(descriptor_pool.Default(), name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - protobuf's name
        """Return the file that declares a symbol.

        Raises:
            KeyError: There is none.
        """
        pool = descriptor_pool.Default()
        try:
            return pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return pool.FindMethodByName(symbol).containing_service.file


def _listen(server: grpc.aio.Server, address: str, tls: ServerTls | None) -> str:
    try:
        if tls is None or address.startswith("unix://"):
            port = server.add_insecure_port(target(address))
        else:
            port = server.add_secure_port(target(address), tls.credentials())
    except RuntimeError as error:
        message = f"cannot listen at {address}: {error}; free it or choose another address"
        raise MeshUnavailable(message, {"address": address}) from None
    if address.startswith("unix://"):
        Path(address.removeprefix("unix://")).chmod(0o600)
        return address
    return f"{target(address).rpartition(':')[0]}:{port}"


def _unlink(addresses: Iterable[str]) -> None:
    for address in addresses:
        Path(address.removeprefix("unix://")).unlink(missing_ok=True)
