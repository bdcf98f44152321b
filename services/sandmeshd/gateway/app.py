"""Opens a gateway."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc

from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.session.v1 import session_pb2
from sandmeshd.gateway.access import bearer_required, check_addresses
from sandmeshd.gateway.calls import NAME, Calls, handlers
from sandmeshd.gateway.forward import forwarded
from sandmeshd.gateway.http import HttpDoor, open_door
from sandmeshd.gateway.routes import Routes
from sandmeshd.gateway.settings import GatewaySettings
from sandmeshd.gateway.socket import open_call_sockets
from sandmeshd.runtime.serving import Registration, open_server


@dataclass(frozen=True)
class Gateway:
    """A gateway that serves: its addresses as gRPC clients dial them, and its door for HTTP."""

    addresses: tuple[str, ...]
    http: HttpDoor


@asynccontextmanager
async def open_gateway(
    settings: GatewaySettings, allocator: grpc.aio.Channel, broker: grpc.aio.Channel
) -> AsyncGenerator[Gateway]:
    """Serve the public address until the block ends. The HTTP listener opens when it is asked to.

    Raises:
        InvalidArgument: An address is open to others without what protects it.
        MeshUnavailable: An address cannot be listened at.
    """
    check_addresses(settings)
    stub = sandbox_pb2_grpc.SandboxServiceStub(allocator)
    routes = Routes(stub, settings.connect_timeout_seconds)
    calls = Calls(settings, routes)
    handler = handlers(calls)
    arounds = [bearer_required(settings)]
    services = [
        Registration(NAME, lambda server: server.add_generic_rpc_handlers((handler,))),
        forwarded(session_pb2.DESCRIPTOR.services_by_name["SessionService"], broker),
        forwarded(sandbox_pb2.DESCRIPTOR.services_by_name["SandboxService"], allocator),
    ]
    async with AsyncExitStack() as stack:
        stack.callback(routes.close)
        door = await stack.enter_async_context(open_door(settings.http_listen))
        listening = await stack.enter_async_context(open_server(settings.listen, services, arounds))
        await stack.enter_async_context(open_call_sockets(settings.listen, calls.make_client, arounds))
        yield Gateway(listening.addresses, door)
