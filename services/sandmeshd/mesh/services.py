"""Runs one service of a mesh whose services run apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmeshd.allocator import open_allocator
from sandmeshd.auth.channels import open_channel, open_channels
from sandmeshd.auth.projects import Projects
from sandmeshd.auth.service_identity import identity_required
from sandmeshd.auth.servicer import TokenServicer
from sandmeshd.auth.token_records import TokenRecords
from sandmeshd.broker import BrokerSettings, open_broker
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.gateway import open_gateway
from sandmeshd.mesh.app import allocator_settings, gateway_settings, identities, store_addresses
from sandmeshd.mesh.driver import decorated, open_driver
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.runtime.addresses import check_private
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.runtime.http import HttpAddresses
from sandmeshd.runtime.http.metrics import metrics_page
from sandmeshd.runtime.http.server import open_http
from sandmeshd.runtime.listeners import Listeners
from sandmeshd.runtime.locks import held
from sandmeshd.runtime.rpc.observation import observed
from sandmeshd.runtime.rpc.registrations import (
    audit_service,
    driver_service,
    quota_service,
    sandbox_service,
    secret_service,
    session_service,
    token_service,
)
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server
from sandmeshd.runtime.rpc.traces import traced
from sandmeshd.runtime.telemetry.metrics import Observed
from sandmeshd.store import open_store
from sandmeshd.templates import open_catalog
from sandmeshd.tenants.audit.records import AuditRecords
from sandmeshd.tenants.audit.servicer import AuditServicer
from sandmeshd.tenants.servicer import QuotaServicer


@dataclass(frozen=True)
class ServiceOptions:
    """What every service has: its settings, the address of its metrics, and where it prints its addresses."""

    settings: MeshSettings
    metrics_address: str | None
    print_line: Callable[[str], None]


async def run_driver(options: ServiceOptions, name: str, listen: str) -> None:
    """Serve a driver until this is cancelled.

    Raises:
        AlreadyExists: Another driver of that name runs on this node.
        RuntimeUnavailable: It does not work on this machine.
    """
    settings = options.settings
    # Two drivers of one kind on one node would each take the other's sandboxes for their own.
    lock = settings.paths.node_state / f"driver-{name}.lock"
    async with _measured(options) as observed_service, held(lock, "driver of this node"):
        book = open_catalog(settings.extensions, settings.templates)
        chosen = settings.model_copy(update={"driver": name})
        async with (
            open_driver(chosen, book) as bare,
            decorated(bare, chosen) as local,
            _serving(options, listen, [driver_service(DriverServicer(local))], observed_service),
        ):
            await asyncio.Event().wait()


async def run_allocator(options: ServiceOptions, listen: str, driver_addresses: Mapping[str, str]) -> None:
    """Serve the allocator until this is cancelled; the drivers' addresses are by name."""
    settings = options.settings
    async with _measured(options) as observed_service, AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings.store))
        proof = identities(settings)
        drivers = {
            name: RemoteDriver(await stack.enter_async_context(open_channel(address, proof)))
            for name, address in driver_addresses.items()
        }
        allocator = open_allocator(allocator_settings(settings), store, drivers, observed_service)
        servicer = await stack.enter_async_context(allocator)
        audit = AuditServicer(AuditRecords(store, settings.audit_entries), Projects(store))
        quotas = QuotaServicer(store, servicer.survey_snapshots)
        services = [sandbox_service(servicer), quota_service(quotas), audit_service(audit)]
        services.append(secret_service(servicer.secrets))
        await stack.enter_async_context(_serving(options, listen, services, observed_service))
        await asyncio.Event().wait()


async def run_broker(options: ServiceOptions, listen: str, allocators: Sequence[str]) -> None:
    """Serve the broker until this is cancelled."""
    settings = options.settings
    async with (
        _measured(options) as observed_service,
        open_store(settings.store) as store,
        open_channels(allocators, identities(settings)) as channel,
        open_broker(BrokerSettings(), store, sandbox_pb2_grpc.SandboxServiceStub(channel)) as servicer,
    ):
        services = [session_service(servicer), token_service(TokenServicer(TokenRecords(store)))]
        async with _serving(options, listen, services, observed_service):
            await asyncio.Event().wait()


async def run_gateway(
    options: ServiceOptions, listen: Sequence[str], allocators: Sequence[str], brokers: Sequence[str]
) -> None:
    """Serve the gateway until this is cancelled."""
    settings = options.settings
    proof = identities(settings)
    own_settings = gateway_settings(settings, tuple(listen))
    async with (
        _measured(options) as observed_service,
        open_channels(allocators, proof) as to_allocator,
        open_channels(brokers, proof) as to_broker,
        open_gateway(own_settings, to_allocator, to_broker, observed_service) as gateway,
    ):
        listeners = Listeners(settings.paths.listeners)
        gateway.http.note(listeners.noted)
        http = await gateway.http.open()
        options.print_line("serving at " + " ".join(gateway.addresses))
        options.print_line("HTTP at " + " ".join(http))
        with listeners.noted(gateway.addresses):
            await asyncio.Event().wait()


@asynccontextmanager
async def _measured(options: ServiceOptions) -> AsyncGenerator[Observed]:
    """Serve the metrics of a service, and report a full disk for what it is."""
    observed_service = Observed()
    async with AsyncExitStack() as stack:
        addresses: tuple[str, ...] = ()
        if options.metrics_address is not None:
            pages = [metrics_page(observed_service, to_all=True)]
            addresses = await stack.enter_async_context(
                open_http(HttpAddresses((options.metrics_address,)), pages, None)
            )
            options.print_line("metrics at " + " ".join(addresses))
        with full_disk_explained(options.settings.state_directory):
            options.settings.paths.make()
            noted = (*addresses, *store_addresses(options.settings))
            with Listeners(options.settings.paths.listeners).noted(noted):
                yield observed_service


@asynccontextmanager
async def _serving(
    options: ServiceOptions, address: str, services: Sequence[ServiceRegistration], observed_service: Observed
) -> AsyncGenerator[None]:
    check_private(address, has_secret=options.settings.mesh_secret is not None)
    interceptors = [observed(observed_service.rpcs), identity_required(identities(options.settings)), traced()]
    async with open_server([address], services, interceptors) as server:
        options.print_line("serving at " + " ".join(server.addresses))
        with Listeners(options.settings.paths.listeners).noted(server.addresses):
            yield
