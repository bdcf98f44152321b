"""Opens a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from sandmesh.api.audit.v1 import audit_pb2, audit_pb2_grpc
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.image.v1 import image_pb2
from sandmesh.api.port.v1 import port_pb2
from sandmesh.api.quota.v1 import quota_pb2, quota_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.secret.v1 import secret_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.api.template.v1 import template_pb2
from sandmesh.api.token.v1 import token_pb2, token_pb2_grpc
from sandmeshd.auth.token_cache import KnownTokens
from sandmeshd.gateway.audit.trail import open_trail
from sandmeshd.gateway.calls.call_socket import call_sockets
from sandmeshd.gateway.calls.calls import NAME, Calls, handlers
from sandmeshd.gateway.door.access import (
    Closed,
    admitted,
    changing,
    closed_to_projects,
    closed_to_users,
    without_sandbox,
)
from sandmeshd.gateway.door.addresses import check_addresses, token_required
from sandmeshd.gateway.door.forward import Observer, forwarded
from sandmeshd.gateway.door.local_sockets import open_local_sockets
from sandmeshd.gateway.door.unary_socket import unary_sockets
from sandmeshd.gateway.metrics import GatewayMetrics
from sandmeshd.gateway.ports import open_ports
from sandmeshd.gateway.ports.authority import UrlAuthority
from sandmeshd.gateway.routes.activity import Activity
from sandmeshd.gateway.routes.call_meters import CallQuotas
from sandmeshd.gateway.routes.routes import Routes
from sandmeshd.gateway.routes.sandbox_use import SandboxUse
from sandmeshd.gateway.settings import GatewaySettings
from sandmeshd.runtime.addresses import is_open
from sandmeshd.runtime.http import Certificate, HttpAddresses, HttpListener, open_listener
from sandmeshd.runtime.http.metrics import metrics_page
from sandmeshd.runtime.retry import SERVICE_SECONDS
from sandmeshd.runtime.rpc.observation import observed
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server
from sandmeshd.runtime.rpc.tls import ServerTls
from sandmeshd.runtime.rpc.traces import traced
from sandmeshd.runtime.telemetry.metrics import Observed


@dataclass(frozen=True)
class Gateway:
    """A gateway that serves: its addresses as gRPC clients dial them, its listener for HTTP, and what is in use."""

    addresses: tuple[str, ...]
    http: HttpListener
    activity: Activity
    refused_by_door: Callable[[str, str], None]
    """Records in the audit what a door refused; takes a sandbox's id and the client's address."""


def check_settings(settings: GatewaySettings) -> None:
    """Check what can be checked before anything is opened.

    Raises:
        InvalidArgument: An address is open to others without what protects it, or a certificate cannot be used.
    """
    check_addresses(settings)
    tls = _tls(settings)
    if tls is not None:
        tls.credentials()


@asynccontextmanager
async def open_gateway(
    settings: GatewaySettings,
    allocator: grpc.aio.Channel,
    broker: grpc.aio.Channel,
    measured: Observed | None = None,
) -> AsyncGenerator[Gateway]:
    """Serve the public address until the block ends. The HTTP listener opens when it is asked to.

    Raises:
        InvalidArgument: An address is open to others without what protects it.
        MeshUnavailable: An address cannot be listened at.
    """
    check_addresses(settings)
    measured = measured or Observed()
    stub = sandbox_pb2_grpc.SandboxServiceStub(allocator)
    routes = Routes(stub, settings.connect_timeout_seconds, settings.agent_silence_seconds)
    routes.metrics = GatewayMetrics(measured.registry)
    quotas = quota_pb2_grpc.QuotaServiceStub(allocator)
    routes.quotas = CallQuotas(quotas, SERVICE_SECONDS)
    owners = _owners(allocator, broker)
    tokens = KnownTokens(token_pb2_grpc.TokenServiceStub(broker), settings.token_cache_seconds, SERVICE_SECONDS)
    async with AsyncExitStack() as stack:
        trail = await stack.enter_async_context(open_trail(settings, audit_pb2_grpc.AuditServiceStub(allocator)))
        calls = Calls(settings, routes, trail.probed)
        services = [
            ServiceRegistration(NAME, lambda server: server.add_generic_rpc_handlers((handlers(calls),))),
            *(forwarded(service, channel, _observers(routes, tokens), trail.recorded) for service, channel in owners),
        ]
        closed = _closed(service for service, _ in owners)
        admission = admitted(settings, tokens, closed, trail.refused)
        arounds = [observed(measured.rpcs), admission, traced(begins=True)]
        stack.callback(routes.close)
        activity = Activity(stub, routes, settings.activity_seconds)
        reports = (activity.report_forever(), routes.quotas.report_forever())
        for running in (tokens.watch(), routes.paused.watch(), *reports):
            stack.push_async_callback(_cancel, asyncio.create_task(running))
        listener = await stack.enter_async_context(open_listener(_addresses(settings), _certificate(settings)))
        _measure_sandboxes(settings, routes, stub, measured, stack)
        listener.add(metrics_page(measured))
        authority = UrlAuthority(quotas, tokens, SERVICE_SECONDS)
        ports = open_ports(settings, routes, listener, activity.holding, trail.recorded, authority)
        services.append(await stack.enter_async_context(ports))
        serving = open_server(settings.listen, services, arounds, tls=_tls(settings), share_ports=settings.share_ports)
        listening = await stack.enter_async_context(serving)
        if _may_carry(settings):
            listener.carry_grpc(_first_of_tcp(listening.addresses))
        kinds = [call_sockets(calls.make_client, arounds), unary_sockets(services, arounds)]
        await stack.enter_async_context(open_local_sockets(settings.listen, kinds))
        yield Gateway(listening.addresses, listener, activity, trail.refused_by_door)


def _measure_sandboxes(
    settings: GatewaySettings,
    routes: Routes,
    stub: sandbox_pb2_grpc.SandboxServiceAsyncStub,
    measured: Observed,
    stack: AsyncExitStack,
) -> None:
    """Show what single sandboxes use, where that is asked for."""
    if settings.sandbox_metrics:
        use = SandboxUse(routes, stub, settings, measured.registry)
        measured.before_reading(use.refresh)
        stack.callback(use.close)


def _first_of_tcp(addresses: Iterable[str]) -> str:
    return next((address for address in addresses if not address.startswith("unix://")), "")


def _closed(forwarded_services: Iterable[ServiceDescriptor]) -> Closed:
    """Return which methods of the public services are closed to which principals."""
    own = [call_pb2.DESCRIPTOR.services_by_name["CallService"], port_pb2.DESCRIPTOR.services_by_name["PortService"]]
    public = [*own, *forwarded_services]
    return Closed(closed_to_users(public), closed_to_projects(public), changing(public), without_sandbox(public))


def _may_carry(settings: GatewaySettings) -> bool:
    """Return whether who reaches the HTTP listener may reach the gRPC address too: not past the tokens of neither."""
    return token_required(settings) or not any(is_open(address) for address in settings.http_listen)


def _observers(routes: Routes, tokens: KnownTokens) -> Mapping[str, Observer]:
    """Return what learns from the responses to forwarded methods, by the method's name."""
    return {
        "ConnectSession": routes.expect,
        "PauseSandbox": routes.paused.note_paused,
        "ResumeSandbox": routes.paused.note_resumed,
        "RevokeToken": tokens.heard_of,
    }


def _owners(allocator: grpc.aio.Channel, broker: grpc.aio.Channel) -> list[tuple[ServiceDescriptor, grpc.aio.Channel]]:
    """Return the services whose public methods are forwarded, each with the channel to its owner."""
    return [
        (session_pb2.DESCRIPTOR.services_by_name["SessionService"], broker),
        (sandbox_pb2.DESCRIPTOR.services_by_name["SandboxService"], allocator),
        (token_pb2.DESCRIPTOR.services_by_name["TokenService"], broker),
        (audit_pb2.DESCRIPTOR.services_by_name["AuditService"], allocator),
        (quota_pb2.DESCRIPTOR.services_by_name["QuotaService"], allocator),
        (secret_pb2.DESCRIPTOR.services_by_name["SecretService"], allocator),
        (template_pb2.DESCRIPTOR.services_by_name["TemplateService"], allocator),
        (image_pb2.DESCRIPTOR.services_by_name["ImageService"], allocator),
    ]


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _addresses(settings: GatewaySettings) -> HttpAddresses:
    return HttpAddresses(settings.http_listen, settings.share_ports, settings.http_ports)


def _certificate(settings: GatewaySettings) -> Certificate | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key)


def _tls(settings: GatewaySettings) -> ServerTls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ServerTls(settings.tls_cert, settings.tls_key)
