"""Ports of sandboxes by name: each is exposed when it is first asked for."""

from __future__ import annotations

import time
from typing import Final

from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.guests import Guest

_SECONDS: Final = 7 * 86_400.0
_MARGIN: Final = 3_600.0


async def port_token(clients: MeshClients, guest: Guest, port: int) -> str:
    """Return the token by which the gateway knows a port of a sandbox.

    Raises:
        SandmeshError: The sandbox is gone, or has too many ports exposed.
    """
    token, ends = guest.ports.get(port, ("", 0.0))
    if ends < time.time() + _MARGIN:
        async with clients.client(None) as mesh:
            exposed = await mesh.ports.expose(guest.sandbox_id, port, ttl=_SECONDS)
        token = token_of(exposed.url)
        guest.ports[port] = (token, exposed.expires.timestamp())
    return token


def token_of(url: str) -> str:
    """Return the token of a port's URL, which is in its path or its host."""
    host, _, path = url.partition("://")[2].partition("/")
    parts = [part for part in path.split("/") if part]
    return parts[-1] if parts else host.partition(".")[0]
