"""What the random steps of test_states.py stand on: caps, nodes, and allocators on one real server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.records.record_store import Claim, NodeWant, RecordStore, Want
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.store import Store
from tests.unit.allocator.invariants import Caps

T = TypeVar("T")

CAPS = Caps(mesh=6, node=4, template=5, caller=3)
NODES = ("n1", "n2")


def want(template: str, ports: int, caller: str) -> Want:
    nodes = [NodeWant(name, "process", CAPS.node, 20000, 20007) for name in NODES]
    limits = (CAPS.mesh, CAPS.template)
    resources = (2**30, 500) if template == "base" else (0, 0)
    return Want(
        template, f"key-{template}-{ports}", ports, *limits, nodes, caller, CAPS.caller if caller else 0, *resources
    )


@dataclass
class Allocator:
    """One allocator's view: what it is starting, and who waits for it."""

    records: RecordStore
    maintenance: MaintenanceStore
    starting: list[RecordState]
    claims: list[tuple[Claim, str]]


class World:
    """A server that all examples share, emptied before each."""

    def __init__(self, store: Store, runner: asyncio.Runner) -> None:
        self.store = store
        self.runner = runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)
