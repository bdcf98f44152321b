"""The plugin of the door for SWE-ReX's RemoteRuntime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from pydantic import Field

from sandmeshd.contracts.door import Door, DoorHost, DoorPlugin, DoorSettings

HINT: Final = (
    "SWE-ReX's RemoteRuntime reaches it with these arguments, and a token of `sandmesh token create NAME`:\n"
    '  host="{url}/swerex/NAME", auth_token="..."'
)


class SwerexSettings(DoorSettings):
    """Settings of the door for SWE-ReX's clients."""

    enabled: bool = Field(default=False, validation_alias="SANDMESH_SWEREX")
    """Serve SWE-ReX's RemoteRuntime on the HTTP listener, with a token of the mesh as its `auth_token`."""

    idle_seconds: float = Field(default=3600.0, gt=0, validation_alias="SANDMESH_SWEREX_IDLE_SECONDS")
    """Shells of this door end when no request has come for so long, and their sandbox after as long again."""


@asynccontextmanager
async def open_door(settings: SwerexSettings, host: DoorHost) -> AsyncGenerator[Door]:
    """Serve SWE-ReX's RemoteRuntime until the block ends."""
    # A mesh without this door does without what it imports.
    opened = await asyncio.to_thread(import_module, "sandmeshd.facades.swerex.app")
    async with opened.open_door(host.mesh, settings.idle_seconds) as door:
        yield door


DOOR = DoorPlugin(SwerexSettings, open_door, HINT)
