"""Measure a mesh on this machine and print a table.

`transports`, `drivers` and `links` compare ways to a mesh, drivers, and links to sandboxes in turns, and `traces` calls
with and without traces. Programs of their
own: `python -m benchmarks.call_path` prints each function that one call enters, and `python -m benchmarks.density` what
each further sandbox costs as they accumulate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from rich.console import Console

from benchmarks import (
    adapter,
    call_path,
    drivers,
    figures,
    links,
    profiles,
    servers,
    streams,
    traces,
    transfers,
    transports,
    warm,
)
from benchmarks.figures import Figure
from benchmarks.meshes import RunningMesh, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import SandmeshError

Bench = Callable[[RunningMesh], Awaitable[list[Figure]]]

PLAIN: Mapping[str, Bench] = {
    "cold": figures.cold,
    "calls": figures.calls,
    "sync": figures.sync_calls,
    "throughput": figures.throughput,
    "neighbour": figures.neighbour,
    "output": figures.output,
    "files": transfers.files,
    "streams": streams.streams,
    "adapter": adapter.adapter,
    "servers": servers.servers,
    "memory": figures.memory,
    "at_once": figures.at_once,
}
POOLED: Mapping[str, Bench] = {"warm": warm.warm}
OWN: Mapping[str, Callable[[], Awaitable[list[Figure]]]] = {
    "profile": profiles.profile,
    "call_path": call_path.call_path,
    "transports": transports.transports,
    "drivers": drivers.drivers,
    "links": links.links,
    "traces": traces.traces,
}
"""Those that start meshes of their own."""
NAMES = ("imports", *PLAIN, *POOLED, *OWN)


async def measure(console: Console, names: set[str]) -> list[Figure]:
    """Run what is named, each kind of mesh once."""
    found = figures.imports() if "imports" in names else []
    for benches, pools in ((PLAIN, {}), (POOLED, {"base": warm.POOL})):
        chosen = {name: bench for name, bench in benches.items() if name in names}
        if chosen:
            async with running_mesh(pools) as mesh:
                for name, bench in chosen.items():
                    with console.status(name):
                        found += await measured(name, bench, mesh)
    for name, own in OWN.items():
        if name in names:
            with console.status(name):
                found += await own()
    return found


async def measured(name: str, bench: Bench, mesh: RunningMesh) -> list[Figure]:
    """Run one benchmark; what the mesh refuses is its line of the table, and the others still run."""
    try:
        return await bench(mesh)
    except SandmeshError as error:
        return [Figure(name, f"failed: {error.reason} {error}")]


def main() -> None:
    """Run the benchmarks that the arguments name, or all."""
    parser = arguments("benchmarks", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    options = parser.parse_args()
    if unknown := sorted({*options.names} - {*NAMES}):
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(NAMES)}")
    before = machine()
    found = asyncio.run(measure(Console(stderr=True), set(options.names or NAMES)))
    show(found, before, as_markdown=options.markdown)


if __name__ == "__main__":
    main()
