"""A mesh whose services run apart, each of which a test may kill and start again."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.faults.programs import EmbeddedStore, ExternalStore, Program, StoreServer
from tests.faults.runtimes import Bubblewrap, Runtime

CLOCK = "STORE_CLOCK"
"""Environment of a world whose store has a clock that a test sets."""
_STATE = "SANDMESH_STATE_DIRECTORY"


@dataclass(frozen=True)
class Shape:
    """How many of what a world has."""

    services: int = 1
    """Each of allocators, brokers and gateways."""
    nodes: int = 1
    store: Literal["external", "embedded"] = "external"
    runtime: Runtime = field(default_factory=Bubblewrap)


class World:
    """A Redis server, drivers, allocators, brokers and gateways, each a process."""

    python = Path(sys.executable)
    """The interpreter of services that are added."""

    def __init__(self, settings: MeshSettings, folder: Path, shape: Shape, environment: dict[str, str]) -> None:
        self.settings = settings
        self.folder = folder
        self.shape = shape
        self.runtime = shape.runtime
        self.store: StoreServer = EmbeddedStore(settings.paths)
        if shape.store == "external":
            own_clock = environment.pop(CLOCK, None) is not None
            self.store = ExternalStore(folder / "store", folder / "store.log", own_clock=own_clock)
        self.programs: dict[str, Program] = {}
        self._environment = {
            **os.environ,
            "SANDMESH_MESH_ID": settings.mesh_id,
            "SANDMESH_LOG_LEVEL": "INFO",
            **self.store.environment,
            **self.runtime.environment,
            **environment,
        }

    @property
    def external(self) -> ExternalStore:
        """The store, where it is one beside the mesh."""
        if not isinstance(self.store, ExternalStore):
            raise TypeError("the store is the mesh's own")
        return self.store

    @property
    def gateways(self) -> list[str]:
        """The gateways' addresses."""
        return [f"unix://{self._socket(name)}" for name in self.programs if name.startswith("gateway")]

    def addresses(self, first: int = 0) -> str:
        """Return the addresses of all gateways as clients write them, beginning with one of choice."""
        gateways = self.gateways
        turn = first % len(gateways)
        return ",".join(gateways[turn:] + gateways[:turn])

    def names(self, prefix: str) -> list[str]:
        """Return the names of the programs with a prefix."""
        return [name for name in self.programs if name.startswith(prefix)]

    def log(self, name: str) -> str:
        """Return a service's log."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    async def open(self) -> None:
        """Start the store and the services."""
        await self.store.start()
        uses: list[str] = []
        for number in range(1, self.shape.nodes + 1):
            name = f"driver{number}"
            command = ("driver", self.runtime.name, "--node-id", f"node-{number}")
            self.add(name, *command, before=self.runtime.command(number))
            uses += ["--driver", f"{name}=unix://{self._socket(name)}"]
        for service, arguments in (("allocator", uses), ("broker", []), ("gateway", [])):
            behind = [] if service == "allocator" else self._reached("allocator")
            behind += self._reached("broker") if service == "gateway" else []
            for number in range(1, self.shape.services + 1):
                self.add(f"{service}{number}", service, *arguments, *behind)
        for service in ("driver", "allocator", "broker", "gateway"):
            await asyncio.gather(*(self.programs[name].start() for name in self.names(service)))

    def _reached(self, service: str) -> list[str]:
        return [word for name in self.names(service) for word in (f"--{service}", f"unix://{self._socket(name)}")]

    async def stop_node(self, number: int) -> None:
        """End a node as when its power fails: driver, sandboxes and all."""
        self.runtime.stop_node(number)
        await self.programs[f"driver{number}"].kill()

    async def close(self) -> None:
        """End everything."""
        for service in ("gateway", "broker", "allocator", "driver", ""):
            await asyncio.gather(*(self.programs[name].stop() for name in self.names(service)))
        await self.store.stop()

    def add(self, name: str, *arguments: str, before: Sequence[str] = ()) -> None:
        """Add a service, which is not started yet."""
        listen = ("--listen", f"unix://{self._socket(name)}")
        command = [*before, str(self.python), "-m", "sandmeshd.cli.service", *arguments, *listen]
        self.programs[name] = Program(name, command, self._environment, self.folder / f"{name}.log")

    def _socket(self, name: str) -> Path:
        return self.settings.paths.services / name


@asynccontextmanager
async def open_world(
    folder: Path,
    count: int = 1,
    shape: Shape | None = None,
    environment: Mapping[str, str] | None = None,
    python: Path = World.python,
) -> AsyncGenerator[World]:
    """Run a world until the block ends, and leave nothing of it."""
    variables = dict(environment or {})
    overrides = {"state_directory": variables[_STATE]} if _STATE in variables else {}
    settings = MeshSettings.model_validate({"mesh_id": f"fault-{secrets.token_hex(4)}", **overrides})
    settings.paths.make()
    world = World(settings, folder, shape or Shape(services=count), variables)
    world.python = python
    try:
        await world.open()
        yield world
    finally:
        await world.close()
        await world.runtime.sweep(settings.paths)
        remove(settings.paths)
