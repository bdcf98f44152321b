"""Who a client of a mesh is, by the token that it shows."""

from __future__ import annotations

from dataclasses import dataclass

from sandmesh.api.token.v1 import token_pb2
from sandmesh.mesh.messages import read_scope
from sandmesh.mesh.records import Record, Scope


@dataclass(frozen=True, kw_only=True)
class PrincipalInfo(Record):
    """Who a client is, and what its token allows."""

    scope: Scope

    user_id: str
    """Empty for an administrator, and where the token is for one sandbox or one project."""

    token_id: str
    """Empty where no token was shown."""

    sandbox_id: str
    """The one sandbox that the token is for, else empty."""

    project: str
    """The project that the token administers, else empty."""

    @property
    def read_only(self) -> bool:
        """Whether it may only look: nothing is created, called, changed or ended with it."""
        return self.scope == "read-only"


def read_principal(message: token_pb2.GetPrincipalResponse) -> PrincipalInfo:
    """Read a principal."""
    return PrincipalInfo(
        _message=message,
        scope=read_scope(message.scope),
        user_id=message.user_id,
        token_id=message.token_id,
        sandbox_id=message.sandbox_id,
        project=message.project,
    )
