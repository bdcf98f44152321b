"""Doors whose clients need a URL and a token of the mesh alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module

from sandmesh.errors import InvalidArgument
from sandmeshd.facades.address import MeshAddress
from sandmeshd.facades.agentscope.settings import AgentscopeSettings
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.runtime.http import HttpListener

Opened = Mapping[str, str]
"""The URL of each door, by its name."""


def open_names(settings: MeshSettings) -> dict[str, AgentscopeSettings | float | str]:
    """Return what each door that the settings open is opened with, by its name."""
    agentscope, swerex, fusion = settings.agentscope_door, settings.swerex_door, settings.sandboxfusion_door
    found: dict[str, tuple[bool, AgentscopeSettings | float | str]] = {
        "agentscope": (agentscope.enabled, agentscope),
        "swerex": (swerex.enabled, swerex.idle_seconds),
        "sandboxfusion": (fusion.enabled, fusion.template),
    }
    return {name: option for name, (enabled, option) in found.items() if enabled}


@asynccontextmanager
async def open_url_doors(settings: MeshSettings, mesh: MeshAddress, listener: HttpListener) -> AsyncGenerator[None]:
    """Serve them until the block ends, where the settings say so, once the listener is open.

    Raises:
        InvalidArgument: The settings contradict each other.
    """
    names = open_names(settings)
    if names and settings.workers > 1:
        variables = ", ".join(f"SANDMESH_{name.upper()}" for name in names)
        raise InvalidArgument(f"{variables}: served by one process: set SANDMESH_WORKERS to 1 (--workers 1)")
    async with AsyncExitStack() as stack:
        for name, option in names.items():
            opened = await asyncio.to_thread(import_module, f"sandmeshd.facades.{name}.app")
            door = await stack.enter_async_context(opened.open_door(mesh, option))
            listener.add(door.add)
        yield


async def door_urls(settings: MeshSettings, listener: HttpListener) -> Opened:
    """Return the URLs of the doors that are open, with the listener open.

    Raises:
        InvalidArgument: There is no HTTP listener.
        MeshUnavailable: An address cannot be listened at.
    """
    names = open_names(settings)
    if not names:
        return {}
    urls = await listener.open()
    if not urls:
        variables = ", ".join(f"SANDMESH_{name.upper()}" for name in names)
        raise InvalidArgument(f"{variables}: this needs the HTTP listener: set SANDMESH_HTTP_LISTEN")
    return dict.fromkeys(names, settings.gateway.http_url or urls[0])
