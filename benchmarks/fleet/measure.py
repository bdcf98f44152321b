"""What a claim costs in a fleet that is nearly empty, and in one that is nearly full."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.fleet.world import Fleet, Holding, Use, claim_many

CLAIM_SCRIPTS = ("session_open", "claim", "started", "ready", "retry", "list", "failed", "leave")
"""The scripts that a claim waits for."""
FULL = 0.97
"""The share of its capacity that a full fleet holds: the rest is for what is claimed while it is measured."""
MOST_EVICTED = 100
EVICTED = 0.01
"""The share of the claims of a rate after which a held sandbox is evicted."""


@dataclass(frozen=True)
class Costs:
    """The costs of claims at one size."""

    alive: int
    claims_a_second: float
    claim_ms: tuple[float, float]
    """The median and the 99th percentile, with the driver's own time."""
    own_ms: tuple[float, float]
    """The same without the driver's time."""
    requests: float
    """Requests to the store that a claim makes."""
    use: Use
    """What a claim and its release take, without what is used while nobody claims."""
    idle: Use
    """What is used in a second in which nobody claims."""
    evicted: int
    refused: int


@dataclass(frozen=True)
class Growth:
    """A fleet from empty to full."""

    empty: Costs | None
    """None where its sandboxes were there before it."""
    full: Costs
    fill_a_second: float
    """Claims a second that filled it, or records that were rebuilt a second."""
    store_bytes: float
    """The store's memory for each sandbox."""
    process_mib: float
    """The memory of services, simulated nodes and clients."""


async def growth(fleet: Fleet, claims: int, at_once: int, idle_seconds: float = 3.0) -> Growth:
    """Measure a fleet that is empty, fill it, and measure it again; one with sandboxes from before as it is."""
    if fleet.held:
        await _warm(fleet, at_once)
        filled = await fleet.store_bytes()
        full = await costs(fleet, fleet.held, claims, at_once, idle_seconds)
        count = len(fleet.held)
        a_sandbox = (filled - fleet.empty_bytes) / count
        return Growth(None, full, count / fleet.opened_seconds, a_sandbox, fleet.memory_mib())
    await _warm(fleet, at_once)
    before = await fleet.store_bytes()
    empty = await costs(fleet, [], claims, at_once, idle_seconds)
    wanted = max(1, round(fleet.shape.sandboxes * FULL) - at_once)
    began = time.perf_counter()
    filling, errors = await claim_many(fleet, wanted, at_once)
    seconds = time.perf_counter() - began
    if len(filling) < wanted * 0.9:
        raise errors[0]
    filled = await fleet.store_bytes()
    full = await costs(fleet, filling, claims, at_once, idle_seconds)
    return Growth(empty, full, len(filling) / seconds, (filled - before) / len(filling), fleet.memory_mib())


async def _warm(fleet: Fleet, at_once: int) -> None:
    # What the first claims alone pay for, and what the services do at their start, is not what is measured.
    for held in (await claim_many(fleet, at_once, at_once))[0]:
        await fleet.release(held)
    await _settled(fleet, len(fleet.held))


async def costs(fleet: Fleet, held: Sequence[Holding], claims: int, at_once: int, idle_seconds: float) -> Costs:
    """Claim and release so many sandboxes beside those that are held, of which some are evicted meanwhile."""
    idle = await _idle(fleet, idle_seconds)
    trips, use, began = await fleet.round_trips(), await fleet.use(), time.perf_counter()
    rate = _Rate(fleet, held)
    await rate.run(claims, at_once)
    seconds = time.perf_counter() - began
    await _settled(fleet, len(held) - len(rate.evicted))
    spent, passed = await fleet.round_trips() - trips, time.perf_counter() - began
    done = len(rate.whole)
    of_claim = Use(*((now - then) / done for now, then in zip(await fleet.use(), use, strict=True)))
    rested = Use(*(part - rest * passed / done for part, rest in zip(of_claim, idle, strict=True)))
    return Costs(
        alive=len(held),
        claims_a_second=done / seconds,
        claim_ms=_percentiles(rate.whole),
        own_ms=_percentiles(rate.own),
        requests=_claim_requests(spent) / done,
        use=rested,
        idle=idle,
        evicted=len(rate.evicted),
        refused=rate.refused,
    )


class _Rate:
    """Claims, each followed by its release, and how long they took."""

    def __init__(self, fleet: Fleet, held: Sequence[Holding]) -> None:
        self._fleet = fleet
        self._left = fleet.some(held, MOST_EVICTED)
        self.whole: list[float] = []
        self.own: list[float] = []
        self.evicted: list[Holding] = []
        self.refused = 0

    async def run(self, claims: int, at_once: int) -> None:
        numbers = iter(range(claims))

        async def work() -> None:
            for number in numbers:
                if self._left and number % round(1 / EVICTED) == 0:
                    self._evict()
                await self._one()

        await asyncio.gather(*(work() for _ in range(at_once)))

    async def _one(self) -> None:
        began = time.perf_counter()
        held, errors = await claim_many(self._fleet, 1, 1)
        took = time.perf_counter() - began
        if errors:
            self.refused += 1
            return
        driver = self._fleet.node_of(held[0]).create_seconds.get(held[0].sandbox.sandbox_id, 0.0)
        self.whole.append(took)
        self.own.append(took - driver)
        await self._fleet.release(held[0])

    def _evict(self) -> None:
        one = self._left.pop()
        self._fleet.evict(one)
        self.evicted.append(one)


async def _idle(fleet: Fleet, seconds: float) -> Use:
    """Return what is used in a second in which nobody claims."""
    before, began = await fleet.use(), time.perf_counter()
    await asyncio.sleep(seconds)
    after, passed = await fleet.use(), time.perf_counter() - began
    return Use(*((now - then) / passed for now, then in zip(after, before, strict=True)))


async def _settled(fleet: Fleet, alive: int) -> None:
    """Return when what was released is deleted on the nodes."""
    async with asyncio.timeout(120):
        while sum(node.running for node in fleet.nodes) > alive:  # noqa: ASYNC110 - nodes notify allocators alone
            await asyncio.sleep(0.1)


def _claim_requests(spent: Counter[str]) -> int:
    return sum(spent[name] for name in CLAIM_SCRIPTS)


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    return statistics.median(ordered) * 1e3, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3
