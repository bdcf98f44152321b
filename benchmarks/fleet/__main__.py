"""`python -m benchmarks.fleet [--sizes 10x1000 ...]`: what a claim costs as nodes and sandboxes grow.

Starts a real store, allocators, brokers and gateways over simulated nodes, whose creates take what the docker driver's
took, and of which some fail. Each size is a fleet of its own; with --apart each allocator is a process. --long is 10
nodes with 1,000 sandboxes, 100 with 10,000 and 1,000 with 100,000, each with one, two and four allocators. Sandboxes of
the long form were there before: their records are rebuilt, as after a store was lost, which takes minutes where so many
claims would take hours.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import structlog
import uvloop
from rich.console import Console

from benchmarks import report
from benchmarks.figures import Figure
from benchmarks.fleet.measure import FULL, Costs, Growth, growth
from benchmarks.fleet.nodes import Behaviour
from benchmarks.fleet.world import Shape, Use, open_fleet

SHORT = ("5x200", "50x2000")
LONG = ("10x1000", "100x10000", "1000x100000")


async def measure(shape: Shape, claims: int, at_once: int, idle_seconds: float) -> Growth:
    """Run one fleet and measure it."""
    # Sockets have short paths, whatever the temporary folder is.
    with tempfile.TemporaryDirectory(prefix="fleet-", dir="/tmp") as folder:
        async with open_fleet(shape, Path(folder)) as fleet:
            return await growth(fleet, claims, at_once, idle_seconds)


def figures(shape: Shape, found: Growth) -> list[Figure]:
    """Return the table's lines of one fleet."""
    apart = ", each a process" if shape.apart else ""
    title = f"{shape.nodes} nodes, room for {shape.sandboxes:,}, allocators: {shape.allocators}{apart}"
    return [
        Figure(title, ""),
        *(_costs(found.empty) if found.empty else ()),
        Figure("  filled", f"{found.fill_a_second:.0f} {'claims' if found.empty else 'rebuilt records'}/s"),
        *_costs(found.full),
        Figure("  memory of the store", f"{found.store_bytes / 1024:.1f} KiB a sandbox"),
        Figure("  memory of services, nodes and clients", f"{found.process_mib:.0f} MiB"),
    ]


def _costs(costs: Costs) -> list[Figure]:
    whole, own = costs.claim_ms, costs.own_ms
    return [
        Figure(f"  with {costs.alive:,} alive: claims", f"{costs.claims_a_second:.0f}/s"),
        Figure("    a claim", f"p50 {whole[0]:.0f} ms, p99 {whole[1]:.0f} ms"),
        Figure("    without the driver's time", f"p50 {own[0]:.1f} ms, p99 {own[1]:.1f} ms"),
        Figure("    requests to the store for a claim", f"{costs.requests:.2f}"),
        Figure("    commands in the store, with the release", f"{costs.use.commands:.0f}"),
        Figure("    time of the store's scripts, with the release", f"{costs.use.script_seconds * 1e6:.0f} us"),
        Figure("    processors' time of a claim and its release", _times(costs.use)),
        Figure("    processors in a second without claims", _times(costs.idle)),
        Figure("    evicted, refused", f"{costs.evicted}, {costs.refused}"),
    ]


def _times(use: Use) -> str:
    services = f"services {use.services_cpu * 1e3:.1f} ms, " if use.services_cpu else ""
    return f"{services}store {use.store_cpu * 1e3:.1f} ms, the rest {use.rest_cpu * 1e3:.1f} ms"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = report.arguments("benchmarks.fleet", __doc__)
    parser.add_argument("--sizes", nargs="+", default=SHORT, metavar="NODESxSANDBOXES", help="fleets to measure")
    parser.add_argument("--long", action="store_true", help="up to 1000x100000, with up to 4 allocators, recovered")
    parser.add_argument("--allocators", nargs="+", type=int, default=[1], help="each with a broker and a gateway")
    parser.add_argument("--apart", action="store_true", help="allocators in processes of their own, nodes over gRPC")
    parser.add_argument("--recovered", action="store_true", help="records are rebuilt from nodes, not claimed")
    parser.add_argument("--cap", type=float, default=0.0, help="a cap on the day's costs, which claims check")
    parser.add_argument("--claims", type=int, default=500, help="claims of each rate")
    parser.add_argument("--at-once", type=int, default=32, help="claims that are open at once")
    parser.add_argument("--idle", type=float, default=3.0, help="seconds without claims; usage is counted every 30")
    parser.add_argument("--delay", type=float, default=1.0, help="multiplies the measured delays of nodes")
    parser.add_argument("--failures", type=float, default=0.005, help="the share of creates that fail")
    chosen = parser.parse_args(words)
    if chosen.long:
        chosen.sizes, chosen.allocators, chosen.recovered = LONG, [1, 2, 4], True
    return chosen


async def main() -> None:
    """Measure each size and print the tables."""
    chosen = arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    console, before = Console(stderr=True), report.machine()
    found: list[Figure] = []
    for size, allocators in itertools.product(chosen.sizes, chosen.allocators):
        nodes, sandboxes = (int(part) for part in size.split("x"))
        behaviour = Behaviour(chosen.delay, chosen.failures)
        recovered = round(sandboxes * FULL) - chosen.at_once if chosen.recovered else 0
        shape = Shape(nodes, sandboxes, allocators, behaviour, recovered, chosen.cap, chosen.apart)
        console.print(f"{size}, allocators: {allocators} ...")
        lines = figures(shape, await measure(shape, chosen.claims, chosen.at_once, chosen.idle))
        console.print(*(f"{line.what}: {line.measured}" for line in lines), sep="\n")
        found += lines
    report.show(found, before, as_markdown=chosen.markdown)


if __name__ == "__main__":
    uvloop.run(main())
