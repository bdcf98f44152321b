"""Settings of the agentrun driver."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from sandmeshd.drivers.clouds.settings import CloudSettings


class AgentRunSettings(CloudSettings, env_prefix="SANDMESH_AGENT_RUN_"):
    """Settings of the agentrun driver of one mesh."""

    driver: ClassVar[str] = "agentrun"

    prefix: str = Field(default="sandmesh", pattern=r"^[A-Za-z][A-Za-z0-9-]{0,17}$")
    """What the runtimes' names begin with."""

    idle_seconds: int = Field(default=3600, ge=1, le=21_600, validation_alias="SANDMESH_AGENT_RUN_SESSION_IDLE")
    """Seconds without any link after which the vendor ends a sandbox's session; the mesh deletes its runtime."""
