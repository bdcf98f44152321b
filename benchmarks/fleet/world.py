"""A mesh of several allocators, brokers and gateways on one store, over simulated nodes."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from redis.asyncio import Redis

from benchmarks.fleet.node_server import serve_nodes
from benchmarks.fleet.nodes import PRICE, TEMPLATE, Behaviour, SimulatedNode
from benchmarks.fleet.services import Services, open_services, resident_mib, service_process, store_settings
from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2 as pb
from sandmesh.api.session.v1 import session_pb2_grpc
from sandmesh.errors import SandmeshError
from sandmesh.shared.wire_errors import translated
from sandmeshd.allocator import AllocatorSettings
from sandmeshd.auth.principal import session_key
from sandmeshd.store import open_store

CLAIM_SECONDS = 120.0
USERS = 1_000
HEADROOM = 1.3
"""How many more sandboxes than its share a node may have."""


@dataclass(frozen=True)
class Shape:
    """The size of a fleet, and how its nodes behave."""

    nodes: int
    sandboxes: int
    allocators: int = 1
    behaviour: Behaviour = field(default_factory=Behaviour)
    recovered: int = 0
    """How many sandboxes the nodes have from before, whose records the first allocator rebuilds when it opens."""
    cost_per_day: float = 0.0
    """A cap on the day's costs, which each claim checks."""
    apart: bool = False
    """Each allocator, with its broker and gateway, is a process of its own, which calls the nodes over gRPC."""


class Use(NamedTuple):
    """What was done and used so far: commands of the store, those inside of scripts included, and seconds."""

    commands: float
    script_seconds: float
    store_cpu: float
    services_cpu: float
    """Of allocators, brokers and gateways in processes of their own."""
    rest_cpu: float
    """Of nodes and clients, and of services that share their process."""


@dataclass(frozen=True)
class Holding:
    """A claimed sandbox, and the stub that claimed it."""

    user: str
    session: str
    sandbox: sandbox_pb2.Sandbox


class Fleet:
    """Callers of a mesh: each claim goes through the next gateway."""

    def __init__(
        self,
        shape: Shape,
        nodes: Sequence[SimulatedNode],
        services: Sequence[Services],
        server: Redis,
        held: Sequence[Holding] = (),
    ) -> None:
        self.shape = shape
        self.nodes = nodes
        self.held = held
        """What the nodes had from before."""
        self.opened_seconds = 0.0
        """How long the first allocator took to open, records that it rebuilt included."""
        self.empty_bytes = 0
        """The store's memory before that."""
        self._services = services
        self.by_id = {node.node_id: node for node in nodes}
        # redis-py leaves the arguments of info untyped.
        self._server: Any = server
        self._numbers = itertools.count()
        self._turns = itertools.count()
        self._random = random.Random(1)  # noqa: S311 - which is evicted, not a secret

    async def claim(self) -> Holding:
        """Claim a sandbox in a new session.

        Raises:
            SandmeshError: As the mesh refuses it.
        """
        number = next(self._numbers)
        user, session = f"user-{number % USERS}", f"s{number}"
        slot = pb.SlotSpec(slot="box", spec=sandbox_pb2.SandboxSpec(template=TEMPLATE))
        request = pb.ConnectSessionRequest(user_id=user, session_id=session, slots=[slot])
        with translated():
            answer = await self._gateway().ConnectSession(request, timeout=CLAIM_SECONDS)
        return Holding(user, session, answer.session.sandboxes["box"])

    async def release(self, held: Holding) -> None:
        """End a session."""
        request = pb.ReleaseSessionRequest(user_id=held.user, session_id=held.session)
        with translated():
            await self._gateway().ReleaseSession(request, timeout=CLAIM_SECONDS)

    def _gateway(self) -> session_pb2_grpc.SessionServiceAsyncStub:
        return self._services[next(self._turns) % len(self._services)].gateway

    def node_of(self, held: Holding) -> SimulatedNode:
        """Return the node that a sandbox is on."""
        return self.by_id[held.sandbox.node_id]

    def some(self, held: Sequence[Holding], count: int) -> list[Holding]:
        """Return so many, drawn at random, or all where they are fewer."""
        return self._random.sample(held, min(count, len(held)))

    def evict(self, held: Holding) -> None:
        """End a sandbox from outside."""
        self.node_of(held).evict(held.sandbox.sandbox_id)

    async def round_trips(self) -> Counter[str]:
        """Return how often each script or command was sent to the store, by all services."""
        total: Counter[str] = Counter()
        for one in self._services:
            total += await one.round_trips()
        return total

    async def use(self) -> Use:
        """Return what the store's server counts of itself, and the processors' time of all processes."""
        stats, cpu = await self._server.info("commandstats"), await self._server.info("cpu")
        scripts = [value for name, value in stats.items() if name in ("cmdstat_evalsha", "cmdstat_eval")]
        return Use(
            commands=sum(int(value["calls"]) for value in stats.values()),
            script_seconds=sum(int(value["usec"]) for value in scripts) / 1e6,
            store_cpu=float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]),
            services_cpu=sum(service.cpu_seconds() for service in self._services),
            rest_cpu=time.process_time(),
        )

    async def store_bytes(self) -> int:
        """Return the store's memory."""
        return int((await self._server.info("memory"))["used_memory"])

    def memory_mib(self) -> float:
        """Return the memory of all processes but the store's."""
        return sum(resident_mib(pid) for pid in {os.getpid(), *(service.pid for service in self._services)})


@asynccontextmanager
async def open_fleet(shape: Shape, folder: Path, **settings: object) -> AsyncGenerator[Fleet]:
    """Run the services and yield a caller; `settings` are the allocators' beside what the shape needs."""
    nodes = [SimulatedNode(f"node-{number}", shape.behaviour) for number in range(shape.nodes)]
    share = shape.sandboxes / shape.nodes
    own = AllocatorSettings.model_validate(
        {
            "capacity": shape.sandboxes,
            "node_capacity": max(2, round(share * HEADROOM)),
            "delete_concurrency": 64,
            "default_ttl_seconds": 7200,
            "cost_per_day": shape.cost_per_day,
            **settings,
        }
    )
    held = populate(nodes, shape.recovered)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        store = await enter(open_store(store_settings(folder)))
        server: Redis = Redis(unix_socket_path=str(store_settings(folder).socket))
        stack.push_async_callback(server.aclose)
        services: list[Services] = []
        fleet = Fleet(shape, nodes, services, server, held)
        fleet.empty_bytes = await fleet.store_bytes()
        began = time.perf_counter()
        if shape.apart:
            await enter(serve_nodes(nodes, folder))
        for number in range(shape.allocators):
            if shape.apart:
                services.append(await enter(service_process(own, [*fleet.by_id], folder, number)))
            else:
                mine = store if not number else await enter(open_store(store_settings(folder)))
                services.append(await enter(open_services(own, mine, fleet.by_id, folder, number)))
            fleet.opened_seconds = fleet.opened_seconds or time.perf_counter() - began
        yield fleet


def populate(nodes: Sequence[SimulatedNode], count: int) -> list[Holding]:
    """Have the nodes hold so many sandboxes of an earlier store, in turns, and return them."""
    held: list[Holding] = []
    for number in range(count):
        node = nodes[number % len(nodes)]
        user, session = f"user-{number % USERS}", f"before-{number}"
        labels = {
            "generation": "before", "session": session_key(user, session), "slot": "box", "user": user,
            "session_name": session, "caller": user, "token": str(number + 1), "ttl_us": str(7_200_000_000),
            "created_us": str(int(time.time() * 1e6)),
        }  # fmt: skip
        made = driver_pb2.RuntimeSandbox(
            sandbox_id=f"sb-before-{number}",
            mesh_id="fleet",
            state=driver_pb2.RUNTIME_STATE_RUNNING,
            endpoint="tls://192.0.2.1:8571",
            record_labels=labels,
            spec=sandbox_pb2.SandboxSpec(template=TEMPLATE),
            nano_price=PRICE,
        )
        node.hold(made)
        sandbox = sandbox_pb2.Sandbox(sandbox_id=made.sandbox_id, node_id=node.node_id)
        held.append(Holding(user, session, sandbox))
    return held


async def claim_many(fleet: Fleet, count: int, at_once: int) -> tuple[list[Holding], list[SandmeshError]]:
    """Claim so many sandboxes; return them, and the errors of those that were refused."""
    held: list[Holding] = []
    errors: list[SandmeshError] = []
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            try:
                held.append(await fleet.claim())
            except SandmeshError as error:
                errors.append(error)

    await asyncio.gather(*(work() for _ in range(at_once)))
    return held, errors
