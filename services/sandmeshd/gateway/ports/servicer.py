"""PortService: what is exposed is kept by the sandbox's agent; it ends with the sandbox and every gateway knows it."""

from __future__ import annotations

import errno
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor

from sandmesh.api.port.v1 import port_pb2 as pb
from sandmesh.api.port.v1 import port_pb2_grpc
from sandmesh.errors import CapabilityMissing, InvalidArgument, SandmeshError, TooLarge
from sandmeshd.auth.principal import Principal, current_principal
from sandmeshd.gateway.ports.agent_call import AgentRefused, ask, start_frame
from sandmeshd.gateway.ports.authority import UrlAuthority
from sandmeshd.gateway.ports.tokens import Signer, TokenTarget, new_exposure
from sandmeshd.gateway.ports.tunnel import OpenTunnels
from sandmeshd.gateway.routes.routes import Routes
from sandmeshd.gateway.settings import GatewaySettings
from sandmeshd.runtime.http import HttpListener

DEFAULT_SECONDS = 3600.0
LONGEST_SECONDS = 30 * 86400.0
_KINDS = {
    "devtools": pb.EXPOSURE_KIND_DEVTOOLS,
    "desktop": pb.EXPOSURE_KIND_DESKTOP,
    "desktop-readonly": pb.EXPOSURE_KIND_DESKTOP_READONLY,
    "browser": pb.EXPOSURE_KIND_BROWSER,
    "browser-readonly": pb.EXPOSURE_KIND_BROWSER_READONLY,
    "mobile": pb.EXPOSURE_KIND_MOBILE,
    "mobile-readonly": pb.EXPOSURE_KIND_MOBILE_READONLY,
}
"""The kinds that are no ports, as agents name them."""

Context = grpc.aio.ServicerContext[Any, Any]
Behaviour = Callable[[Any, Context], Awaitable[Any]]
Record = Callable[[MethodDescriptor, Behaviour], Behaviour]


class PortServicer(port_pb2_grpc.PortServiceServicer):
    """Makes, lists and revokes URLs."""

    def __init__(
        self,
        settings: GatewaySettings,
        routes: Routes,
        signer: Signer,
        listener: HttpListener,
        open_tunnels: OpenTunnels,
        authority: UrlAuthority,
    ) -> None:
        self._authority = authority
        self._settings = settings
        self._routes = routes
        self._signer = signer
        self._listener = listener
        self._open_tunnels = open_tunnels

    async def ExposePort(self, request: pb.ExposePortRequest, context: Context) -> pb.ExposePortResponse:
        """Make a URL."""
        kind = _read_kind(request)
        seconds = request.ttl.ToNanoseconds() / 1e9 if request.HasField("ttl") else DEFAULT_SECONDS
        if not 1 <= seconds <= LONGEST_SECONDS:
            raise InvalidArgument(f"ttl is 1 second to 30 days, not {seconds:g} s")
        token_id = current_principal().token_id
        expires = min(int(time.time() + seconds) + 1, await self._authority.expiry(token_id))
        target = TokenTarget(request.sandbox_id, new_exposure(), request.port, int(expires), request.kind)
        exposed = await self._describe(target)
        arguments = {"exposure_id": target.exposure_id, "port": target.port, "expires": target.expires, **kind}
        if token_id:
            arguments["token_id"] = token_id
        # Whose sandbox it is comes before what its owner has.
        await self._routes.of(current_principal()).link(request.sandbox_id)
        await self._authority.hold(target)
        try:
            await self._ask(request.sandbox_id, "ports.expose", arguments, request.fencing_token)
        except (AgentRefused, SandmeshError) as error:
            await self._authority.release(target.sandbox_id, target.exposure_id)
            if isinstance(error, SandmeshError):
                raise
            if error.number == errno.ENOTSUP:
                raise CapabilityMissing(str(error), {"needs": kind.get("kind", "")}) from None
            raise TooLarge(str(error)) from None
        return pb.ExposePortResponse(port=exposed)

    async def ListExposedPorts(
        self, request: pb.ListExposedPortsRequest, context: Context
    ) -> pb.ListExposedPortsResponse:
        """List what is exposed, and end what was made with tokens that are over."""
        found = await self._ask(request.sandbox_id, "ports.list", {}, request.fencing_token)
        response = pb.ListExposedPortsResponse()
        for exposure in found["ports"]:
            token_id = exposure.get("token_id", "")
            if await self._authority.ended(token_id):
                await self._end(request.sandbox_id, exposure["exposure_id"], request.fencing_token)
            else:
                target, shown = _target(request.sandbox_id, exposure), _may_use(current_principal(), token_id)
                response.ports.append(await self._describe(target, exposure["connections"], shown=shown))
        return response

    async def RevokePort(self, request: pb.RevokePortRequest, context: Context) -> pb.RevokePortResponse:
        """End a URL and its connections: the agent ends those of all gateways, and this one may not know it yet."""
        await self._end(request.sandbox_id, request.exposure_id, request.fencing_token)
        return pb.RevokePortResponse()

    async def _end(self, sandbox_id: str, exposure_id: str, fencing_token: int) -> None:
        await self._ask(sandbox_id, "ports.revoke", {"exposure_id": exposure_id}, fencing_token)
        self._open_tunnels.abort(exposure_id)
        await self._authority.release(sandbox_id, exposure_id)

    async def _describe(self, target: TokenTarget, connections: int = 0, *, shown: bool = True) -> pb.ExposedPort:
        exposed = pb.ExposedPort(
            exposure_id=target.exposure_id, port=target.port, connections=connections, kind=target.kind
        )
        if shown:
            exposed.url = await self._url(self._signer.sign(target))
        exposed.expire_time.FromSeconds(target.expires)
        return exposed

    async def _url(self, token: str) -> str:
        addresses = await self._listener.open()
        if not addresses:
            message = "this gateway serves no HTTP: set http_listen (SANDMESH_HTTP_LISTEN)"
            raise CapabilityMissing(message, {"needs": "http_listen"})
        base = self._settings.http_url or addresses[0]
        domain = self._settings.ports_domain
        if domain is None:
            return f"{base.rstrip('/')}/p/{token}/"
        scheme, _, rest = base.partition("://")
        port = rest.rstrip("/").rpartition("]")[2].partition(":")[2]
        return f"{scheme}://{token}.{domain}{f':{port}' if port else ''}/"

    async def _ask(self, sandbox_id: str, tool: str, arguments: dict[str, Any], token: int) -> dict[str, Any]:
        frame = start_frame(sandbox_id, tool, arguments, fencing_token=token)
        return await ask(self._routes.of(current_principal()), self._settings.connect_timeout_seconds, frame)


def _target(sandbox_id: str, exposure: dict[str, Any]) -> TokenTarget:
    kind = _KINDS.get(exposure.get("kind", ""), pb.EXPOSURE_KIND_UNSPECIFIED)
    return TokenTarget(sandbox_id, exposure["exposure_id"], exposure["port"], exposure["expires"], kind)


def _may_use(principal: Principal, token_id: str) -> bool:
    """Return whether a principal may have the URL that was made with a token: it would outlive any other token.

    Principals without a token, such as the mesh's own user, are revoked by nothing.
    """
    return not principal.read_only and principal.token_id in ("", token_id)


def _read_kind(request: pb.ExposePortRequest) -> dict[str, str]:
    """Return what tells the agent the kind: nothing for a port.

    Raises:
        InvalidArgument: There is no such port or kind.
    """
    if request.kind == pb.EXPOSURE_KIND_UNSPECIFIED:
        if not 1 <= request.port <= 65535:
            raise InvalidArgument(f"port is 1 to 65535, not {request.port}")
        return {}
    name = next((name for name, kind in _KINDS.items() if kind == request.kind), None)
    if name is None:
        raise InvalidArgument(f"kind {request.kind} is unknown to this gateway")
    if request.port:
        raise InvalidArgument(f"a URL of the kind {name} has no port: leave port out")
    return {"kind": name}


class RecordedPorts(port_pb2_grpc.PortServiceServicer):
    """Serve as another does, within what records each method."""

    def __init__(self, servicer: PortServicer, record: Record) -> None:
        methods = pb.DESCRIPTOR.services_by_name["PortService"].methods_by_name
        self._expose = record(methods["ExposePort"], servicer.ExposePort)
        self._list = record(methods["ListExposedPorts"], servicer.ListExposedPorts)
        self._revoke = record(methods["RevokePort"], servicer.RevokePort)

    async def ExposePort(self, request: pb.ExposePortRequest, context: Context) -> pb.ExposePortResponse:
        """Make a URL."""
        return cast("pb.ExposePortResponse", await self._expose(request, context))

    async def ListExposedPorts(
        self, request: pb.ListExposedPortsRequest, context: Context
    ) -> pb.ListExposedPortsResponse:
        """List URLs."""
        return cast("pb.ListExposedPortsResponse", await self._list(request, context))

    async def RevokePort(self, request: pb.RevokePortRequest, context: Context) -> pb.RevokePortResponse:
        """End a URL and its connections."""
        return cast("pb.RevokePortResponse", await self._revoke(request, context))
