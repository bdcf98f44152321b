"""Opens a whole mesh in this process: the same services as apart, over the same gRPC, on sockets of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc
import structlog
from pydantic import SecretStr

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import CapabilityMissing, InvalidArgument
from sandmeshd.allocator import AllocatorSettings, open_allocator
from sandmeshd.auth.service_identity import Identities, identity_required, kept_secret
from sandmeshd.auth.servicer import TokenServicer
from sandmeshd.auth.token_records import TokenRecords
from sandmeshd.broker import BrokerSettings, open_broker
from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.gateway import GatewaySettings, HttpDoor, check_settings, open_gateway
from sandmeshd.mesh.driver import open_driver
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.mesh.shutdown import Ending
from sandmeshd.mesh.storage import keeping
from sandmeshd.mesh.sweep import remove, sweep_private
from sandmeshd.runtime.locks import held
from sandmeshd.runtime.metrics import Observed
from sandmeshd.runtime.rpc.local_channel import local_channel
from sandmeshd.runtime.rpc.registrations import (
    driver_service,
    sandbox_service,
    session_service,
    template_service,
    token_service,
)
from sandmeshd.runtime.rpc.server import open_server
from sandmeshd.store import Store, StoreSettings, open_store
from sandmeshd.templates import TemplateBook, open_book
from sandmeshd.templates.servicer import TemplateServicer

log = structlog.get_logger()

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Mesh:
    """A mesh that runs: its addresses as clients dial them, the unix socket first, its door for HTTP, and its end."""

    addresses: tuple[str, ...]
    http: HttpDoor
    ending: Ending


@asynccontextmanager
async def open_mesh(settings: MeshSettings, progress: Progress) -> AsyncGenerator[Mesh]:
    """Run a mesh until the block ends; `progress` hears what a first start builds (message, fraction from 0 to 1).

    Raises:
        AlreadyExists: A mesh of that id runs already.
        InvalidArgument: An address is open to others without what protects it, or a certificate cannot be used.
        RuntimeUnavailable: The driver cannot work on this machine; the facts say what to do.
        AlreadyExists: Two templates have one name.
        TemplateBuildFailed: The templates' environment could not be built.
    """
    paths = settings.paths
    async with AsyncExitStack() as stack:
        paths.make()
        await sweep_private(settings)
        if settings.ephemeral:
            stack.callback(remove, paths)
        await stack.enter_async_context(held(paths.lock))
        storage = settings.storage
        gateway = gateway_settings(settings, (f"unix://{paths.gateway}", *settings.listen))
        check_settings(gateway)
        store = await stack.enter_async_context(open_store(store_settings(settings)))
        book = open_book(settings.extensions, settings.templates)
        bare = await stack.enter_async_context(open_driver(settings, book))
        driver = await stack.enter_async_context(keeping(bare, storage))
        await _prepare(driver, progress)
        measured = Observed()
        ending = Ending(settings.keep_sandboxes or settings.ephemeral)
        internal = f"unix://{paths.services}/i"
        channel = await _open_internal(stack, settings, _Parts(store, driver, book, ending, measured), internal)
        listening = await stack.enter_async_context(open_gateway(gateway, channel, channel, measured))
        yield Mesh(listening.addresses, listening.http, ending)


@dataclass(frozen=True)
class _Parts:
    store: Store
    driver: Driver
    book: TemplateBook
    ending: Ending
    measured: Observed


async def _open_internal(
    stack: AsyncExitStack, settings: MeshSettings, parts: _Parts, address: str
) -> grpc.aio.Channel:
    store, driver = parts.store, parts.driver
    allocator = await stack.enter_async_context(
        open_allocator(allocator_settings(settings), store, {settings.driver: driver}, parts.measured)
    )
    stack.push_async_callback(parts.ending.run, allocator.evacuation)
    leases = local_channel([sandbox_service(allocator)])
    sandboxes = sandbox_pb2_grpc.SandboxServiceStub(leases)
    broker = await stack.enter_async_context(open_broker(BrokerSettings(), store, sandboxes))
    services = [
        sandbox_service(allocator),
        session_service(broker),
        token_service(TokenServicer(TokenRecords(store))),
        driver_service(DriverServicer(driver)),
        template_service(TemplateServicer(parts.book, allocator.refresh_nodes)),
    ]
    await stack.enter_async_context(open_server([address], services, [identity_required(identities(settings))]))
    return local_channel(services)


async def _prepare(driver: Driver, progress: Progress) -> None:
    info = await driver.get_info(driver_pb2.GetInfoRequest())
    for template in info.templates:
        if not template.prepared:
            request = driver_pb2.PrepareTemplateRequest(template=template.name)
            try:
                async for step in driver.prepare_template(request):
                    progress(step.message, step.fraction)
            except CapabilityMissing as error:
                # Its sandboxes are refused in the same words; the other templates are none the worse for it.
                log.warning("a template cannot be made here", template=template.name, why=error.message)


def identities(settings: MeshSettings) -> Identities:
    """Give what proves services of the mesh to each other."""
    return Identities(mesh_secret(settings))


def mesh_secret(settings: MeshSettings) -> str:
    """Give what the mesh's services share: the one that is stated, else the one that is kept with its state."""
    stated = settings.mesh_secret
    return stated.get_secret_value() if stated else kept_secret(settings.paths.secret)


def gateway_settings(settings: MeshSettings, listen: tuple[str, ...]) -> GatewaySettings:
    """Give the gateway's own settings.

    Raises:
        InvalidArgument: There is a certificate without a key, or a key without a certificate.
    """
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise InvalidArgument("a certificate needs its key: give --tls-cert and --tls-key, or neither")
    return GatewaySettings(
        listen=listen,
        http_listen=settings.http_listen,
        http_ports=settings.port_range,
        share_ports=settings.workers > 1,
        http_url=settings.http_url,
        ports_domain=settings.ports_domain,
        url_secret=SecretStr(mesh_secret(settings)),
        bearer_token=settings.bearer_token,
        bearer_user=settings.bearer_user,
        require_token=settings.require_token,
        token_cache_seconds=settings.token_cache_seconds,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        allow_insecure=settings.allow_insecure,
    )


def store_settings(settings: MeshSettings) -> StoreSettings:
    """Give the store's own settings."""
    if settings.redis_url is not None:
        return StoreSettings(mesh_id=settings.mesh_id, url=settings.redis_url)
    paths = settings.paths
    return StoreSettings(
        mesh_id=settings.mesh_id,
        directory=paths.store,
        socket=paths.services / "r",
        outlives_machine=not settings.ephemeral,
    )


def allocator_settings(settings: MeshSettings) -> AllocatorSettings:
    """Give the allocator's own settings."""
    return AllocatorSettings(
        capacity=settings.max_sandboxes,
        node_capacity=settings.max_sandboxes_per_node or settings.max_sandboxes,
        node_capacities=settings.node_capacities,
        template_capacities=settings.template_capacities,
        caller_capacity=settings.max_sandboxes_per_user,
        pools=settings.pools,
        default_ttl_seconds=settings.lease_seconds,
        queue_timeout_seconds=settings.queue_seconds,
        node_grace_seconds=settings.node_grace_seconds,
        default_idle_seconds=settings.idle_seconds,
        sweep_seconds=settings.sweep_seconds,
        owner_grace_seconds=settings.owner_grace_seconds,
        event_seconds=settings.event_seconds,
        tomb_seconds=max(60, settings.event_seconds),
        ephemeral=settings.ephemeral,
    )
