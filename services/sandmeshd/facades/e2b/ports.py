"""Ports of sandboxes by name: each is exposed when it is first asked for."""

from __future__ import annotations

import time
from typing import Final

from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.guests import Guest
from sandmeshd.runtime.http import ExposedUrl

_SECONDS: Final = 7 * 86_400.0
_MARGIN: Final = 3_600.0


async def exposed_port(clients: MeshClients, guest: Guest, port: int) -> ExposedUrl:
    """Return where a port of a sandbox is exposed.

    Raises:
        SandmeshError: The sandbox is gone, or has too many ports exposed.
    """
    found, ends = guest.ports.get(port, (None, 0.0))
    if found is None or ends < time.time() + _MARGIN:
        async with clients.client(None) as mesh:
            exposed = await mesh.ports.expose(guest.sandbox_id, port, ttl=_SECONDS)
        found = read_url(exposed.url)
        guest.ports[port] = (found, exposed.expires.timestamp())
    return found


def read_url(url: str) -> ExposedUrl:
    """Return the parts of a port's URL: its token is in the path or the host."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    parts = [part for part in path.split("/") if part]
    return ExposedUrl(parts[-1] if parts else host.partition(".")[0], f"{scheme}://{host}")
