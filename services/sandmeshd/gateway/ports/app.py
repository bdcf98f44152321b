"""Ports put together."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from pydantic import SecretStr

from sandmesh.api.port.v1 import port_pb2, port_pb2_grpc
from sandmeshd.gateway.ports.authority import UrlAuthority
from sandmeshd.gateway.ports.makers import Makers
from sandmeshd.gateway.ports.servicer import PortServicer, Record, RecordedPorts
from sandmeshd.gateway.ports.tokens import Signer
from sandmeshd.gateway.ports.tunnel import Holding, OpenTunnels
from sandmeshd.gateway.routes.routes import Routes
from sandmeshd.gateway.settings import GatewaySettings
from sandmeshd.runtime.http import HttpListener
from sandmeshd.runtime.rpc.server import ServiceRegistration

if TYPE_CHECKING:
    from aiohttp import web


@asynccontextmanager
async def open_ports(
    settings: GatewaySettings,
    routes: Routes,
    listener: HttpListener,
    holding: Holding,
    record: Record,
    authority: UrlAuthority,
) -> AsyncGenerator[ServiceRegistration]:
    """Proxy HTTP to ports of sandboxes until the block ends. Yields the service that makes URLs.

    `holding` counts a sandbox as in use while a connection into it is open; `record` wraps what serves a method;
    `authority` counts URLs and knows which tokens are in force.
    """
    signer = Signer(settings.url_secret or SecretStr(secrets.token_hex(32)))
    open_tunnels = OpenTunnels()
    servicer = PortServicer(settings, routes, signer, listener, open_tunnels, authority)
    makers = Makers(routes, authority.tokens, settings.connect_timeout_seconds, open_tunnels)
    service = RecordedPorts(servicer, record)
    name = port_pb2.DESCRIPTOR.services_by_name["PortService"].full_name
    async with AsyncExitStack() as stack:

        def add(application: web.Application) -> None:
            # aiohttp is imported when the listener opens.
            proxying = import_module("sandmeshd.gateway.ports.proxy")
            tunnels = proxying.Tunnels(routes, settings.connect_timeout_seconds, holding, open_tunnels)
            proxy = proxying.Proxy(signer, makers, tunnels, settings.ports_domain)
            proxy.add(application)
            stack.push_async_callback(proxy.close)

        listener.add(add)
        yield ServiceRegistration(name, lambda server: port_pb2_grpc.add_PortServiceServicer_to_server(service, server))
