"""Nodes whose sandboxes are containers of an engine of the tests' own, which is a thing to strike, too."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.drivers.engine.container_config import MESH, NODE
from sandmeshd.drivers.engine.engine import open_engine
from sandmeshd.drivers.engine.runtimes import DriverName
from sandmeshd.runtime.paths import MeshPaths
from tests.engine import Daemon, query
from tests.faults.runtimes import Marked, folders_left
from tests.leaks import mark_process, marked_processes

KERNEL = ("runsc-sandbox ", "runsc-gofer ")
"""What a container of gVisor's is on the machine: a kernel, and what hands it files."""


class Docker(Marked):
    """Nodes that share one engine, as several drivers of a mesh may."""

    faults: Sequence[str] = ("container killed", "container removed", "engine")

    def __init__(self, daemon: Daemon, driver_name: DriverName = "docker") -> None:
        self.name: str = driver_name
        self._daemon = daemon
        self._before = self._there()

    @property
    def environment(self) -> Mapping[str, str]:
        return {"SANDMESH_DOCKER_URL": self._daemon.url}

    def processes(self, number: int) -> list[int]:
        ids = [
            container["Id"]
            for container in self._containers("?all=1")
            if container["Labels"].get(NODE) == f"node-{number}"
        ]
        on_node = [pid for pid in self.inside() if any(name in _groups_of(pid) for name in ids)]
        return super().processes(number) + on_node

    def inside(self) -> list[int]:
        if self.name == "docker":
            return super().inside()
        return [pid for pid, what in marked_processes(mark_process()).items() if what.startswith(KERNEL)]

    async def strike(self, victim: str, dice: random.Random) -> None:
        if victim == "engine":
            await self._restart(dice.uniform(0.0, 1.0))
            return
        running = [one["Id"] for one in await asyncio.to_thread(self._containers, "")]
        if running:
            chosen = f"/containers/{dice.choice(running)}"
            order = (f"{chosen}/kill", "POST") if victim == "container killed" else (f"{chosen}?force=1", "DELETE")
            await asyncio.to_thread(query, self._daemon.url, *order)

    async def _restart(self, pause: float) -> None:
        await asyncio.to_thread(self._daemon.kill)
        orphans = _shims()
        await asyncio.sleep(pause)
        await asyncio.to_thread(self._daemon.start)
        _bury(orphans.items() & _shims().items())

    def _containers(self, which: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = query(self._daemon.url, f"/containers/json{which}")
        return found

    def left(self, paths: MeshPaths) -> list[str]:
        try:
            return [*folders_left(paths), *map(str, _shims().items()), *sorted(self._there() - self._before)]
        except OSError as error:
            return [f"the engine does not answer: {error}"]

    def _there(self) -> set[str]:
        url = self._daemon.url
        containers = {
            f"container {container['Names']}: {container['State']}" for container in self._containers("?all=1")
        }
        volumes = {
            f"volume {volume['Name']} of {volume['Labels']}" for volume in query(url, "/volumes")["Volumes"] or ()
        }
        networks = {f"network {one['Name']}" for one in query(url, "/networks")}
        return containers | volumes | networks | _groups()

    async def sweep(self, paths: MeshPaths) -> None:
        async with open_engine(self._daemon.url) as engine:
            for container in await engine.list(f"{MESH}={paths.mesh_id}"):
                await engine.remove(container["Id"])
            for volume in await engine.unused_volumes(f"{MESH}={paths.mesh_id}"):
                await engine.remove_volume(volume)
        await sweep_state(paths)


def _groups_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cgroup").read_text()
    return ""


def _shims() -> dict[int, str]:
    return {pid: what for pid, what in marked_processes(mark_process()).items() if "containerd-shim" in what}


def _groups() -> set[str]:
    # Another engine's are there for as long as its containers: what is left stays.
    return {f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob("*/docker/*") if path.is_dir()}


def _bury(orphans: Set[tuple[int, str]]) -> None:
    # An engine that serves has ended every container; the shim of one that it died in the middle of starting it has
    # forgotten, and so has everybody. What a sandbox had in it is another thing, and would be left.
    for pid, command in orphans:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        for group in Path("/sys/fs/cgroup").glob(f"*/docker/{command.partition(' -id ')[2].partition(' ')[0]}"):
            with suppress(OSError):
                group.rmdir()
