"""Checks keys against the mesh, at each request: a key that was revoked a moment ago is refused."""

from __future__ import annotations

from sandmesh.mesh import PrincipalInfo
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.clients import MeshClients


class KeyCheck:
    """Checks whether a key is a token of the mesh."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients

    async def check(self, key: str, argument: str, *, using: bool = False) -> PrincipalInfo:
        """Return the principal of a request's key; `argument` is how its client is given one.

        Raises:
            RequestError: There is none, or it may only look and the request is `using` sandboxes.
            Unauthenticated: The mesh does not take it.
            SandmeshError: The mesh cannot be asked.
        """
        if not key:
            raise RequestError(401, f"a key is missing: give {argument}, a token of `sandmesh token create NAME`")
        async with self._clients.client(key) as mesh:
            principal = await mesh.whoami()
        if using and principal.read_only:
            raise RequestError(403, "the key is read-only, and this uses sandboxes: send another one")
        return principal
