"""What the routes of the control plane share with the door."""

from __future__ import annotations

from dataclasses import dataclass

from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.builds.builder import Builder
from sandmeshd.facades.e2b.builds.catalog import Catalog
from sandmeshd.facades.e2b.control.meter import SandboxMeter
from sandmeshd.facades.e2b.events.routes import EventRoutes
from sandmeshd.facades.e2b.volumes.shelf import Shelf


@dataclass(frozen=True)
class ControlParts:
    """What the routes share with the door."""

    clients: MeshClients
    catalog: Catalog
    builder: Builder
    shelf: Shelf
    meter: SandboxMeter
    events: EventRoutes
    secret: str
    """What tokens of volumes are sealed with."""
