"""The plugin of the door for AgentScope Runtime's SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from sandmeshd.contracts.door import Door, DoorHost, DoorPlugin
from sandmeshd.facades.agentscope.settings import AgentscopeSettings

HINT: Final = (
    "AgentScope Runtime's SDK reaches it with these arguments, and a token of `sandmesh token create NAME`:\n"
    '  base_url="{url}", bearer_token="..."'
)


@asynccontextmanager
async def open_door(settings: AgentscopeSettings, host: DoorHost) -> AsyncGenerator[Door]:
    """Serve AgentScope Runtime's SDK until the block ends."""
    # A mesh without this door does without what it imports.
    opened = await asyncio.to_thread(import_module, "sandmeshd.facades.agentscope.app")
    async with opened.open_door(host.mesh, settings) as door:
        yield door


DOOR = DoorPlugin(AgentscopeSettings, open_door, HINT)
