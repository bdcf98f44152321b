"""The doors of a mesh for clients of other systems; none is open unless it is configured."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sandmesh.errors import InvalidArgument
from sandmeshd.contracts.door import Door, DoorHost, DoorPlugin, DoorSettings
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.registry import find_doors, switch
from sandmeshd.mesh.plugin_settings import validate
from sandmeshd.mesh.settings import MeshSettings, mesh_secret
from sandmeshd.runtime.http import Certificate, HttpListener


@dataclass(frozen=True)
class Doors:
    """The doors that are open."""

    urls: Mapping[str, str]
    """The URLs of those whose clients need no more than that and a token, by name."""
    variables: Mapping[str, Mapping[str, str]]
    """The environment variables that clients of the others need, by name."""


def door_settings(settings: MeshSettings, name: str, plugin: DoorPlugin) -> DoorSettings:
    """Return the settings of a door, open or not.

    Raises:
        InvalidArgument: One does not fit; the message names setting and door.
    """
    return validate("door", name, plugin.settings, settings.doors)


def check_doors(settings: MeshSettings) -> None:
    """Check the settings of every door.

    Raises:
        InvalidArgument: As `door_settings`.
        RuntimeUnavailable: A door cannot be loaded, or two have one name or setting.
    """
    for name, plugin in find_doors().items():
        door_settings(settings, name, plugin)


def _open_settings(settings: MeshSettings) -> dict[str, tuple[DoorPlugin, DoorSettings]]:
    found = {name: (plugin, door_settings(settings, name, plugin)) for name, plugin in find_doors().items()}
    chosen = {name: pair for name, pair in found.items() if pair[1].enabled}
    if chosen and settings.workers > 1:
        switches = ", ".join(switch(plugin).name for plugin, _ in chosen.values())
        raise InvalidArgument(f"{switches}: served by one process: set SANDMESH_WORKERS to 1 (--workers 1)")
    return chosen


@asynccontextmanager
async def open_doors(settings: MeshSettings, mesh: MeshAddress, listener: HttpListener) -> AsyncGenerator[Doors]:
    """Serve the doors that the settings open until the block ends.

    Raises:
        InvalidArgument: Settings contradict each other, two doors have one path, or an address is open to others.
        MeshUnavailable: An address cannot be listened at.
        RuntimeUnavailable: A door cannot be loaded, or needs a package that is not installed.
    """
    chosen = _open_settings(settings)
    if not chosen:
        yield Doors({}, {})
        return
    async with AsyncExitStack() as stack:
        paths, doors = PathOwners(), dict[str, tuple[Door, DoorHost]]()
        for name, (plugin, own) in chosen.items():
            host = _host(settings, name, mesh, listener)
            doors[name] = await stack.enter_async_context(plugin.open(own, host)), host
            listener.add(paths.adding(name, doors[name][0]))
        urls = await listener.open()
        if not urls:
            switches = ", ".join(switch(plugin).name for plugin, _ in chosen.values())
            raise InvalidArgument(f"{switches}: this needs the HTTP listener: set SANDMESH_HTTP_LISTEN")
        url = settings.gateway.http_url or urls[0]
        variables = {
            name: await plugin.variables(own, doors[name][1], doors[name][0], url)
            for name, (plugin, own) in chosen.items()
            if plugin.variables is not None
        }
        yield Doors({name: url for name in chosen if name not in variables}, variables)


def _host(settings: MeshSettings, name: str, mesh: MeshAddress, listener: HttpListener) -> DoorHost:
    gateway = settings.gateway
    cert, key = gateway.tls_cert, gateway.tls_key
    certificate = Certificate(cert, key) if cert is not None and key is not None else None

    def secret() -> str:
        # A door apart from the mesh may be the first of it on its machine.
        settings.paths.make()
        return mesh_secret(settings)

    return DoorHost(mesh, secret, settings.paths.state / name, certificate, listener.open_more)


class PathOwners:
    """The paths of the routes that doors have, each with its door."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], str] = {}

    def adding(self, name: str, door: Door) -> Any:
        """Return what adds a door's routes to an application.

        Raises:
            InvalidArgument: When it is called: another door has one of its paths.
        """

        def add(application: Any) -> None:
            before = len(application.router.routes())
            door.add(application)
            for route in [*application.router.routes()][before:]:
                key = (route.method, getattr(route.resource, "canonical", ""))
                owner = self._owners.setdefault(key, name)
                if owner != name and route.method != "HEAD":
                    raise InvalidArgument(
                        f"the doors {owner} and {name} both have {' '.join(key)}: open one of them by its own process, "
                        "`sandmeshd facade NAME`"
                    )

        return add
