"""What the commands of AgentScope Runtime's names serve beside a mesh: its API and its import paths."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from sandmesh.compat.agentscope_runtime import install
from sandmeshd.gateway import token_required
from sandmeshd.mesh import MeshSettings

log = structlog.get_logger()


def serve_old_paths(extensions: Sequence[str] | None) -> None:
    """Enable extensions to import `agentscope_runtime`, as they were written.

    Raises:
        AlreadyExists: That package itself is installed here, so the extensions would register with it.
    """
    if extensions:
        install()


def with_door(settings: MeshSettings) -> MeshSettings:
    """Return settings by which the API of AgentScope Runtime is at the address of gRPC, and this at another port."""
    gateway = settings.gateway
    if settings.workers > 1:
        detail = "one process serves it: leave out WORKERS, or run `sandmeshd facade agentscope` beside the mesh"
        log.warning("the API of AgentScope Runtime is not served", detail=detail)
        return settings
    others = tuple(dict.fromkeys(f"{address.rpartition(':')[0]}:0" for address in gateway.listen))
    door = {"agentscope": True, "agentscope_require_token": token_required(gateway)}
    return settings.replaced(http_listen=gateway.listen, listen=others, **door)
