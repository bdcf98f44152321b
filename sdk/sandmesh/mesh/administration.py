"""Tokens, audit, quotas, usage and secrets: a part of the client of a mesh."""

from __future__ import annotations

from sandmesh.api.token.v1 import token_pb2
from sandmesh.mesh.audit import AuditAsync
from sandmesh.mesh.principal import PrincipalInfo, read_principal
from sandmesh.mesh.quotas import QuotasAsync
from sandmesh.mesh.resources import TokensAsync
from sandmesh.mesh.rpc import Rpc
from sandmesh.mesh.secrets import MeshSecretsAsync
from sandmesh.mesh.usage import UsageAsync


class Administration:
    """What of a mesh is about users and what they may do."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def whoami(self) -> PrincipalInfo:
        """Return who this client is: the scope of its token, and whose it is.

        Raises:
            Unauthenticated: The mesh does not accept the token.
        """
        request = token_pb2.GetPrincipalRequest()
        return read_principal(await self._rpc.send(lambda stubs: stubs.tokens.GetPrincipal, request))

    @property
    def tokens(self) -> TokensAsync:
        """The tokens of clients: create, list, revoke."""
        return TokensAsync(self._rpc)

    @property
    def audit(self) -> AuditAsync:
        """Who changed what, and who was refused: list."""
        return AuditAsync(self._rpc)

    @property
    def quotas(self) -> QuotasAsync:
        """The quotas of projects and users: list, set, assign."""
        return QuotasAsync(self._rpc)

    @property
    def usage(self) -> UsageAsync:
        """What projects and sandboxes had: list."""
        return UsageAsync(self._rpc)

    @property
    def secrets(self) -> MeshSecretsAsync:
        """The secrets that the mesh stores: list, set, remove."""
        return MeshSecretsAsync(self._rpc)
