"""Keys of the control plane's requests: which principal each is, and whether it may change anything."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from sandmesh.mesh import PrincipalInfo
from sandmeshd.facades.clients import MeshClients, owner_of
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.requests import MOST_BYTES, ROOM, Room, api_key
from sandmeshd.tenants.shares import Shares

_PRINCIPAL: Final = web.RequestKey("principal", PrincipalInfo)
_READING: Final = ("GET", "HEAD")


class ApiKeys:
    """Checks keys against the mesh."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients
        self._bodies = Shares("bytes of bodies", MOST_BYTES)

    async def admit(self, request: web.Request) -> None:
        """Check the key of a request, and note whose it is.

        Raises:
            ApiError: There is none, or it is read-only and the request would change something.
            SandmeshError: The mesh does not accept it, or does not answer.
        """
        async with self._clients.client(api_key(request)) as mesh:
            principal = await mesh.whoami()
        if principal.read_only and request.method not in _READING:
            message = f"the key is read-only, and {request.method} {request.path} changes something: use another key"
            raise ApiError(403, message)
        request[_PRINCIPAL] = principal
        request[ROOM] = Room(self._bodies, owner_of(principal))


def owner(request: web.Request) -> str:
    """Return whom the use of an admitted request counts for."""
    return owner_of(request[_PRINCIPAL])


def may_use(request: web.Request) -> bool:
    """Return whether the key of an admitted request may use sandboxes, and not only look at them."""
    return not request[_PRINCIPAL].read_only
