"""An HTTP client whose connections are tunnels."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

from sandmesh.errors import SandmeshError
from sandmeshd.auth.principal import ADMIN
from sandmeshd.gateway.ports.agent_call import AgentRefused, ask, start_frame
from sandmeshd.gateway.ports.tokens import TokenTarget
from sandmeshd.gateway.ports.tunnel import Holding, OpenTunnels, Tunnel
from sandmeshd.gateway.routes.routes import Routes

MOST_PER_PORT: Final = 100
_CONNECT_SECONDS: Final = 15.0


class PortUnreachable(aiohttp.ClientConnectionError):
    """No connection to the port: the sandbox or its mesh says why."""

    def __init__(self, why: SandmeshError | AgentRefused) -> None:
        super().__init__(str(why))
        self.why = why


class Tunnels(aiohttp.BaseConnector):
    """Opens connections to exposed ports; the host of a URL is the exposure's name."""

    def __init__(self, routes: Routes, grace: float, holding: Holding, open_tunnels: OpenTunnels) -> None:
        super().__init__(limit=0, limit_per_host=MOST_PER_PORT)
        self._routes = routes
        self._grace = grace
        self._targets: dict[str, TokenTarget] = {}
        self._holding = holding
        self._open_tunnels = open_tunnels

    def host(self, target: TokenTarget) -> str:
        """Return the host that stands for a target."""
        self._targets[target.exposure_id] = target
        return target.exposure_id

    def forget(self, exposure_id: str) -> None:
        """Forget a target."""
        self._targets.pop(exposure_id, None)

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        """Open a tunnel; aiohttp asks for it where no connection is free.

        Raises:
            Unreachable: Nothing listens there, it is exposed no more or the sandbox is gone.
        """
        protocol: ResponseHandler = self._factory()
        await self.connect_protocol(protocol, self._targets[req.url.host or ""])
        return protocol

    async def connect_protocol(self, protocol: asyncio.Protocol, target: TokenTarget, viewer: str = "") -> Tunnel:
        """Open a tunnel to a target, for a viewer if it is a desktop.

        Raises:
            Unreachable: Nothing listens there, it is exposed no more or the sandbox is gone.
        """
        in_use = ExitStack()
        in_use.enter_context(self._holding(target.sandbox_id))
        tunnel = Tunnel(protocol, in_use.close)
        in_use.enter_context(self._open_tunnels.keeping(target.exposure_id, tunnel))
        protocol.connection_made(tunnel)
        try:
            tunnel.open(self._routes.of(ADMIN), target, self._grace, viewer)
            await tunnel.connected
        except (SandmeshError, AgentRefused) as why:
            tunnel.close()
            raise PortUnreachable(why) from None
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    async def ask(self, target: TokenTarget, tool: str, arguments: dict[str, str]) -> dict[str, Any]:
        """Ask the agent of a target.

        Raises:
            Unreachable: It refused, or the sandbox is gone.
        """
        try:
            return await ask(self._routes.of(ADMIN), self._grace, start_frame(target.sandbox_id, tool, arguments))
        except (SandmeshError, AgentRefused) as why:
            raise PortUnreachable(why) from None


def open_session(tunnels: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    """Open an HTTP client that changes nothing of what it carries, keeps no cookies and follows no redirects."""
    tracing = aiohttp.TraceConfig()
    tracing.on_request_redirect.append(_refuse_redirect)
    return aiohttp.ClientSession(
        connector=tunnels,
        trace_configs=[tracing],
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=64 << 10,
        max_field_size=64 << 10,
    )


async def _refuse_redirect(_: aiohttp.ClientSession, __: object, params: aiohttp.TraceRequestRedirectParams) -> None:
    """Refuse the redirect of a WebSocket, which aiohttp follows: its host may be the name of another's port."""
    found = params.response
    found.close()
    message = "a redirect of a WebSocket is not followed"
    raise aiohttp.WSServerHandshakeError(found.request_info, (), status=found.status, message=message)
