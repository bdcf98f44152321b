"""Runs a whole mesh in this process: the same services as apart, over the same gRPC, on its own sockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc
import structlog
from pydantic import SecretStr

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import CapabilityMissing, ProtocolMismatch, SandmeshError, TemplateBuildFailed
from sandmeshd.allocator import AllocatorSettings, open_allocator
from sandmeshd.auth.doors import door_proof
from sandmeshd.auth.projects import Projects
from sandmeshd.auth.service_identity import Identities, identity_required
from sandmeshd.auth.servicer import TokenServicer
from sandmeshd.auth.token_records import TokenRecords
from sandmeshd.broker import BrokerSettings, open_broker
from sandmeshd.contracts.driver import Driver
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.gateway import GatewaySettings, HttpListener, check_settings, open_gateway
from sandmeshd.mesh.doors import open_doors
from sandmeshd.mesh.driver import decorated, open_driver
from sandmeshd.mesh.image_builds import image_servicer
from sandmeshd.mesh.settings import MeshSettings, mesh_secret
from sandmeshd.mesh.shutdown import LEFT, UNDELETED, Ending
from sandmeshd.mesh.start_checks import (
    check_addresses_free,
    check_certificate_maker,
    check_not_running,
    check_templates,
)
from sandmeshd.mesh.sweep import remove, sweep_private
from sandmeshd.runtime.listeners import Listeners
from sandmeshd.runtime.locks import held
from sandmeshd.runtime.rpc.local_channel import local_channel
from sandmeshd.runtime.rpc.registrations import (
    audit_service,
    driver_service,
    image_service,
    quota_service,
    sandbox_service,
    secret_service,
    session_service,
    template_service,
    token_service,
)
from sandmeshd.runtime.rpc.server import open_server
from sandmeshd.runtime.telemetry.metrics import Observed
from sandmeshd.store import Store, open_store
from sandmeshd.templates import TemplateCatalog, open_catalog
from sandmeshd.templates.servicer import TemplateServicer
from sandmeshd.tenants.audit.records import AuditRecords
from sandmeshd.tenants.audit.servicer import AuditServicer
from sandmeshd.tenants.servicer import QuotaServicer

log = structlog.get_logger()

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Mesh:
    """A mesh that runs: its addresses as clients dial them, the unix socket first, its HTTP listener, and its end."""

    addresses: tuple[str, ...]
    http: HttpListener
    ending: Ending
    e2b: Mapping[str, str]
    """The variables that E2B's clients need, empty where the mesh has no door for them."""
    doors: Mapping[str, str]
    """The URLs of the doors whose clients need no more than that and a token, by name."""


@asynccontextmanager
async def open_mesh(settings: MeshSettings, progress: Progress) -> AsyncGenerator[Mesh]:
    """Run a mesh until the block ends; `progress` receives what a first start builds (message, fraction from 0 to 1).

    Raises:
        AlreadyExists: A mesh of that id runs already, or two templates have one name.
        InvalidArgument: An address is open to others without what protects it, a certificate cannot be used, or a
            setting names a template that does not exist.
        MeshUnavailable: An address is in use.
        RuntimeUnavailable: The driver cannot work on this machine; the facts say what to do.

    A template that cannot be made ready stops nothing: its sandboxes are refused, and it is tried again.
    """
    paths = settings.paths
    async with AsyncExitStack() as stack:
        check_not_running(settings)
        paths.make()
        await sweep_private(settings)
        if settings.ephemeral:
            stack.callback(remove, paths)
        await stack.enter_async_context(held(paths.lock))
        gateway = gateway_settings(settings, (f"unix://{paths.gateway}", *settings.gateway.listen))
        check_settings(gateway)
        check_addresses_free(settings)
        check_certificate_maker(settings)
        book = open_catalog(settings.extensions, settings.templates)
        check_templates(settings, book)
        store = await stack.enter_async_context(open_store(settings.store))
        bare = await stack.enter_async_context(open_driver(settings, book))
        driver = await stack.enter_async_context(decorated(bare, settings))
        broken = await _prepare(driver, book, progress)
        measured = Observed()
        ending = Ending(settings.keep_sandboxes or settings.ephemeral, paths.services / LEFT, paths.state / UNDELETED)
        internal = f"unix://{paths.services}/i"
        channel = await _open_internal(stack, settings, _Parts(store, driver, book, ending, measured, broken), internal)
        listening = await stack.enter_async_context(open_gateway(gateway, channel, channel, measured))
        listeners = Listeners(paths.listeners)
        listening.http.note(listeners.noted)
        stack.enter_context(listeners.noted((*listening.addresses, *store_addresses(settings))))
        proof, refused = door_proof(mesh_secret(settings)), listening.refused_by_door
        own = MeshAddress(listening.addresses[0], proof=proof, refused=refused)
        doors = await stack.enter_async_context(open_doors(settings, own, listening.http))
        yield Mesh(listening.addresses, listening.http, ending, doors.variables.get("e2b", {}), doors.urls)


@dataclass(frozen=True)
class _Parts:
    store: Store
    driver: Driver
    book: TemplateCatalog
    ending: Ending
    measured: Observed
    broken: Mapping[str, SandmeshError]


async def _open_internal(
    stack: AsyncExitStack, settings: MeshSettings, parts: _Parts, address: str
) -> grpc.aio.Channel:
    store, driver = parts.store, parts.driver
    broken = {(settings.driver, template): error for template, error in parts.broken.items()}
    allocator = await stack.enter_async_context(
        open_allocator(allocator_settings(settings), store, {settings.driver: driver}, parts.measured, broken)
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
        quota_service(QuotaServicer(store, allocator.survey_snapshots)),
        secret_service(allocator.secrets),
        audit_service(AuditServicer(AuditRecords(store, settings.audit_entries), Projects(store))),
        template_service(TemplateServicer(parts.book, allocator.refresh_nodes)),
        image_service(image_servicer(settings)),
    ]
    await stack.enter_async_context(open_server([address], services, [identity_required(identities(settings))]))
    return local_channel(services)


async def _prepare(driver: Driver, book: TemplateCatalog, progress: Progress) -> Mapping[str, SandmeshError]:
    """Make templates ready; return why others cannot be, by name: those are tried again later."""
    broken: dict[str, SandmeshError] = {}
    info = await driver.get_info(driver_pb2.GetInfoRequest())
    for template in info.templates:
        if not template.prepared and not book[template.name].on_demand:
            request = driver_pb2.PrepareTemplateRequest(template=template.name, ahead=True)
            try:
                async for step in driver.prepare_template(request):
                    progress(step.message, step.fraction)
            except CapabilityMissing as error:
                # Its sandboxes are refused in the same words; the other templates are none the worse for it.
                log.warning("a template cannot be made here", template=template.name, why=error.message)
            except (TemplateBuildFailed, ProtocolMismatch) as error:
                broken[template.name] = error
    return broken


def store_addresses(settings: MeshSettings) -> tuple[str, ...]:
    """Return the address of the external server that is the store; the mesh's own has a unix socket."""
    return () if settings.redis_url is None else (settings.redis_url.get_secret_value(),)


def identities(settings: MeshSettings) -> Identities:
    """Return the identities by which services of the mesh authenticate each other."""
    return Identities(mesh_secret(settings))


def gateway_settings(settings: MeshSettings, listen: tuple[str, ...]) -> GatewaySettings:
    """Return the gateway's settings, with its addresses and the mesh's secret."""
    own = {
        "listen": listen,
        "share_ports": settings.workers > 1,
        "url_secret": SecretStr(mesh_secret(settings)),
    }
    return settings.gateway.model_copy(update=own)


def allocator_settings(settings: MeshSettings) -> AllocatorSettings:
    """Return the allocator's settings; a deleted sandbox is remembered for a minute at least."""
    own = {
        "tomb_seconds": max(60, settings.allocator.event_seconds),
        "ephemeral": settings.ephemeral,
        "mesh_secret": SecretStr(mesh_secret(settings)),
    }
    return settings.allocator.model_copy(update=own)
