"""Settings of the door for SandboxFusion's clients."""

from __future__ import annotations

from pydantic import Field

from sandmeshd.runtime.settings import Settings


class SandboxfusionSettings(Settings):
    """Settings of the door for SandboxFusion's clients."""

    enabled: bool = Field(default=False, validation_alias="SANDMESH_SANDBOXFUSION")
    """Serve SandboxFusion's clients on the HTTP listener, with a token of the mesh as the password of their URL."""

    template: str = Field(default="base", validation_alias="SANDMESH_SANDBOXFUSION_TEMPLATE")
    """The template of the sandboxes that run code: the languages are those whose programs it has."""
