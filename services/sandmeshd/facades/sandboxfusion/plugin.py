"""The plugin of the door for SandboxFusion's clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from pydantic import Field

from sandmeshd.contracts.door import Door, DoorHost, DoorPlugin, DoorSettings

HINT: Final = (
    "SandboxFusion's clients reach it with these arguments, and a token of `sandmesh token create NAME`:\n"
    '  endpoint="{url}", with x:TOKEN@ after its http://'
)


class SandboxfusionSettings(DoorSettings):
    """Settings of the door for SandboxFusion's clients."""

    enabled: bool = Field(default=False, validation_alias="SANDMESH_SANDBOXFUSION")
    """Serve SandboxFusion's clients on the HTTP listener, with a token of the mesh as the password of their URL."""

    template: str = Field(default="base", validation_alias="SANDMESH_SANDBOXFUSION_TEMPLATE")
    """The template of the sandboxes that run code: the languages are those whose programs it has."""


@asynccontextmanager
async def open_door(settings: SandboxfusionSettings, host: DoorHost) -> AsyncGenerator[Door]:
    """Serve SandboxFusion's clients until the block ends."""
    # A mesh without this door does without what it imports.
    opened = await asyncio.to_thread(import_module, "sandmeshd.facades.sandboxfusion.app")
    async with opened.open_door(host.mesh, settings.template) as door:
        yield door


DOOR = DoorPlugin(SandboxfusionSettings, open_door, HINT)
