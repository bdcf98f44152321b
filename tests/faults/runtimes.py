"""What a world has to know of the runtime that its nodes are: the one place that differs where a driver does."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths
from tests.leaks import cgroups, mark_process


class Runtime(Protocol):
    """A driver as a storm strikes it. Another driver's storm needs another one of these and nothing else."""

    name: str
    """As `sandmeshd driver NAME` has it."""

    faults: Sequence[str]
    """What may be struck of it, beside its drivers, sandboxes and nodes."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells its drivers of it."""
        ...

    def command(self, number: int) -> Sequence[str]:
        """Return the start of the command line of a node's driver, by which its processes are known."""
        ...

    def processes(self, number: int) -> list[int]:
        """Return every process of a node: its driver's, and those of its sandboxes."""
        ...

    def inside(self) -> list[int]:
        """Return the processes of all nodes that live in a sandbox, zygotes included."""
        ...

    def stop_node(self, number: int) -> None:
        """End everything of a node at once, as when its power fails."""
        ...

    async def strike(self, victim: str, dice: random.Random) -> None:
        """Strike one of its faults; return when it works again."""
        ...

    def left(self, paths: MeshPaths) -> list[str]:
        """List what a node has left on the machine beside processes."""
        ...

    async def sweep(self, paths: MeshPaths) -> None:
        """Remove what is left of all nodes when no driver serves any more."""
        ...


class Marked:
    """Nodes on this machine, each known by a limit that its processes inherit and nothing here uses: of file locks."""

    def command(self, number: int) -> Sequence[str]:
        """Return what marks a driver and all that it starts."""
        return ("prlimit", f"--locks={self._mark(number)}:", "--")

    def _mark(self, number: int) -> int:
        return mark_process() * 10 + number

    def processes(self, number: int) -> list[int]:
        """Return the processes that have a node's mark."""
        mark = str(self._mark(number))
        return [pid for pid, limits in _limits() if limits.get("Max file locks") == mark]

    def inside(self) -> list[int]:
        """Return this run's processes in namespaces of their own."""
        ours, mark = Path("/proc/self/ns/pid").readlink(), str(mark_process())
        found: list[int] = []
        for pid, limits in _limits():
            with suppress(OSError):
                if limits.get("Max msgqueue size") == mark and Path(f"/proc/{pid}/ns/pid").readlink() != ours:
                    found.append(pid)
        return found

    def stop_node(self, number: int) -> None:
        """End them all."""
        # The driver first, so that it sees none of its sandboxes end; again, since what runs may just have forked.
        for _ in range(3):
            for pid in sorted(self.processes(number)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Bubblewrap(Marked):
    """Nodes whose sandboxes are processes below their drivers."""

    name = "bubblewrap"
    faults: Sequence[str] = ()
    environment: Mapping[str, str] = {"SANDMESH_BUBBLEWRAP_SPARES": "1" if os.geteuid() == 0 else "0"}
    """Only root can tell the processes of those that are prepared ahead."""

    async def strike(self, victim: str, dice: random.Random) -> None:
        raise ValueError(f"there is no {victim}")

    def left(self, paths: MeshPaths) -> list[str]:
        found = [f"cgroup {path}" for path in cgroups() if paths.mesh_id in path.name and path.is_dir()]
        # Those that living drivers prepared ahead are no leftovers: they end with their drivers.
        staged = [
            sandbox for node in paths.of_all_nodes() for sandbox in MeshFolders(node).all_staged() if sandbox.is_alive()
        ]
        names = tuple(one.sandbox_id for one in staged)
        return [each for each in folders_left(paths) + found if not each.endswith(names)]

    def inside(self) -> list[int]:
        return [pid for pid in super().inside() if not _is_spare(pid)]

    async def sweep(self, paths: MeshPaths) -> None:
        await sweep_state(paths)


def _is_spare(pid: int) -> bool:
    """Return whether a process is of a sandbox that was prepared ahead, which its log's place tells."""
    with suppress(OSError):
        return "/.gone-spare-" in os.readlink(f"/proc/{pid}/fd/2")  # noqa: PTH115 - what a link leads to need not be a path
    return False


def folders_left(paths: MeshPaths) -> list[str]:
    """List the folders of sandboxes and snapshots that are there."""
    nodes = paths.of_all_nodes()
    folders = [path for node in nodes for path in (node.sandboxes, node.agents, node.node_state / "snapshots")]
    return [f"folder {path}" for folder in folders if folder.is_dir() for path in folder.iterdir()]


def _limits() -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the soft limits of every process that is not a zombie."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                lines = (folder / "limits").read_text().splitlines()
                yield int(folder.name), {line[:26].strip(): line[26:].split()[0] for line in lines[1:]}
