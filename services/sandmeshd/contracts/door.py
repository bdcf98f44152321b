"""The plugin of a door: what an entry point of the group `sandmesh.doors` refers to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import Field

from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.runtime.http import Certificate, HttpAddresses, Pages
from sandmeshd.runtime.settings import Settings


class DoorSettings(Settings):
    """Settings of a door: whether it is open, and what is its own."""

    enabled: bool = Field(default=False)
    """Whether the door is open."""


@dataclass(frozen=True)
class DoorHost:
    """What the process that opens a door has for it."""

    mesh: MeshAddress
    """The mesh that the door is a client of."""
    secret: Callable[[], str]
    """Returns the mesh's secret, from which a door may derive tokens, and makes the mesh's directories for it."""
    folder: Path
    """A directory of the door's own, which does not exist until the door makes it."""
    certificate: Certificate | None
    """The certificate of the mesh's addresses; None where they have none."""
    listen_more: Callable[[HttpAddresses, Certificate], Awaitable[tuple[str, ...]]]
    """Opens further addresses for the routes of all doors, and returns their URLs."""


class Door(Protocol):
    """A door that is open."""

    def add(self, application: Any) -> None:
        """Add the door's routes to an application of aiohttp."""
        ...


class DoorPlugin(NamedTuple):
    """A door: its settings, the function that opens it, and how clients reach it."""

    settings: type[DoorSettings]
    open: Callable[[Any, DoorHost], AbstractAsyncContextManager[Door]]
    """Opens the door with its settings until the block ends."""
    hint: str
    """What `sandmesh up` prints of an open door, with the listener's `{url}`, and its `{variables}` a line each."""
    variables: Callable[[Any, DoorHost, Any, str], Awaitable[Mapping[str, str]]] | None = None
    """Returns the environment variables that clients need, given the settings, the open door and the listener's URL."""
    open_apart: Callable[[MeshAddress], AbstractAsyncContextManager[Pages]] | None = None
    """Opens what the door needs where it is served apart from the mesh, and yields its routes."""
    interface: int = 1
    """The version of this interface that the door was written for."""
