"""Settings of the door for SWE-ReX's clients."""

from __future__ import annotations

from pydantic import Field

from sandmeshd.runtime.settings import Settings


class SwerexSettings(Settings):
    """Settings of the door for SWE-ReX's clients."""

    enabled: bool = Field(default=False, validation_alias="SANDMESH_SWEREX")
    """Serve SWE-ReX's RemoteRuntime on the HTTP listener, with a token of the mesh as its `auth_token`."""

    idle_seconds: float = Field(default=3600.0, gt=0, validation_alias="SANDMESH_SWEREX_IDLE_SECONDS")
    """Shells of this door end when no request has come for so long, and their sandbox after as long again."""
