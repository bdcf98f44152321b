"""The plugin of the door for Jupyter Server's remote kernels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from pydantic import Field

from sandmeshd.contracts.door import Door, DoorHost, DoorPlugin, DoorSettings

HINT: Final = (
    "JupyterLab and Jupyter Server run their kernels here, with a token of `sandmesh token create NAME`:\n"
    '  JUPYTER_GATEWAY_AUTH_TOKEN=... jupyter lab --gateway-url="{url}/jupyter"'
)


class JupyterSettings(DoorSettings):
    """Settings of the door for Jupyter's remote kernels."""

    enabled: bool = Field(default=False, validation_alias="SANDMESH_JUPYTER")
    """Serve Jupyter Server's gateway protocol on the HTTP listener, with a token of the mesh as its token."""

    template: str = Field(default="base", validation_alias="SANDMESH_JUPYTER_TEMPLATE")
    """The template of kernels' sandboxes where a client's KERNEL_SANDMESH_TEMPLATE names none."""

    idle_seconds: float = Field(default=3600.0, gt=0, validation_alias="SANDMESH_JUPYTER_IDLE_SECONDS")
    """A kernel's sandbox ends when nothing has run in it for so long."""


@asynccontextmanager
async def open_door(settings: JupyterSettings, host: DoorHost) -> AsyncGenerator[Door]:
    """Serve Jupyter Server's gateway protocol until the block ends."""
    # A mesh without this door does without what it imports.
    opened = await asyncio.to_thread(import_module, "sandmeshd.facades.jupyter.app")
    async with opened.open_door(host.mesh, settings) as door:
        yield door


DOOR = DoorPlugin(JupyterSettings, open_door, HINT)
