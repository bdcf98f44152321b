"""An HTTP client whose connections are tunnels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

from sandmesh.errors import SandmeshError
from sandmeshd.gateway.ports.asking import Refused
from sandmeshd.gateway.ports.tokens import Target
from sandmeshd.gateway.ports.tunnel import Tunnel
from sandmeshd.gateway.routes import Routes
from sandmeshd.runtime.callers import ADMIN

MOST_CONNECTIONS: Final = 512
MOST_PER_PORT: Final = 100
_CONNECT_SECONDS: Final = 15.0


class Unreachable(aiohttp.ClientConnectionError):
    """No connection to the port: the sandbox or its mesh says why."""

    def __init__(self, why: SandmeshError | Refused) -> None:
        super().__init__(str(why))
        self.why = why


class Tunnels(aiohttp.BaseConnector):
    """Opens connections to exposed ports; the host of a URL is the exposure's name."""

    def __init__(self, routes: Routes, grace: float) -> None:
        super().__init__(limit=MOST_CONNECTIONS, limit_per_host=MOST_PER_PORT)
        self._routes = routes
        self._grace = grace
        self._targets: dict[str, Target] = {}
        self._tunnels: Counter[str] = Counter()

    def host(self, target: Target) -> str:
        """Give the host that stands for a target."""
        self._targets[target.exposure_id] = target
        return target.exposure_id

    def forget(self, exposure_id: str) -> None:
        """Let go of a target."""
        self._targets.pop(exposure_id, None)

    def count(self, sandbox_id: str) -> int:
        """Say how many connections into a sandbox are open: one that has some is in use."""
        return self._tunnels[sandbox_id]

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        """Open a tunnel; aiohttp asks for it where no connection is free.

        Raises:
            Unreachable: Nothing listens there, it is exposed no more or the sandbox is gone.
        """
        target = self._targets[req.url.host or ""]
        protocol: ResponseHandler = self._factory()
        tunnel = Tunnel(protocol, self._counted(target.sandbox_id))
        protocol.connection_made(tunnel)
        try:
            tunnel.open(self._routes.of(ADMIN), target, self._grace)
            await tunnel.connected
        except (SandmeshError, Refused) as why:
            tunnel.close()
            raise Unreachable(why) from None
        except BaseException:
            tunnel.close()
            raise
        return protocol

    def _counted(self, sandbox_id: str) -> Callable[[], None]:
        self._tunnels[sandbox_id] += 1
        return partial(self._one_less, sandbox_id)

    def _one_less(self, sandbox_id: str) -> None:
        self._tunnels[sandbox_id] -= 1
        if not self._tunnels[sandbox_id]:
            del self._tunnels[sandbox_id]


def open_session(tunnels: Tunnels) -> aiohttp.ClientSession:
    """Give the client; it changes nothing of what it carries and keeps no cookies."""
    return aiohttp.ClientSession(
        connector=tunnels,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=64 << 10,
        max_field_size=64 << 10,
    )
