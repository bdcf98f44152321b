"""Settings of the door for AgentScope Runtime's SDK."""

from __future__ import annotations

from pydantic import Field

from sandmeshd.contracts.door import DoorSettings


class AgentscopeSettings(DoorSettings):
    """Settings of the door for AgentScope Runtime's SDK."""

    enabled: bool = Field(default=False, validation_alias="SANDMESH_AGENTSCOPE")
    """Serve AgentScope Runtime's SDK on the HTTP listener, with a token of the mesh as its `bearer_token`."""

    require_token: bool = Field(default=True, validation_alias="SANDMESH_AGENTSCOPE_REQUIRE_TOKEN")
    """Whether its clients must show a token; else programs of this machine that show none are an administrator."""

    idle_seconds: float = Field(default=3600.0, gt=0, validation_alias="SANDMESH_AGENTSCOPE_IDLE_SECONDS")
    """Sandboxes of this door end when they have not been used for so long: its clients never renew them."""
