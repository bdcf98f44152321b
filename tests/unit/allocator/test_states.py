"""Random interleavings of several allocators' steps, by the real scripts on a real server, with every step checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import Recovering, SandboxStartFailed
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.records.record_store import BatchTurn, Claim, RecordStore
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.store import StoreSettings, open_store
from tests.unit.allocator.invariants import Caps, check, dump
from tests.unit.allocator.pause_steps import ALLOCATORS, PauseSteps, allocators, picks, there_are
from tests.unit.allocator.states_world import CAPS, NODES, Allocator, World, want
from tests.unit.store.waiting import commands

HOUR_US, GRACE_SECONDS = 3600 * 10**6, 1000.0
TIMES = (
    (HOUR_US, 0, ""),
    (HOUR_US, 0, ""),
    (HOUR_US, 1, ""),
    (1, 0, ""),
    (HOUR_US, HOUR_US, ""),
    (HOUR_US, 1, "pause"),
)
"""Of a lease and of being idle, and what is done then."""
SETTINGS = AllocatorSettings(owner_grace_seconds=GRACE_SECONDS, node_grace_seconds=GRACE_SECONDS)


def anybody(what: str) -> Callable[[Steps], bool]:
    """Give the condition that an allocator has something under way."""
    return lambda self: any(getattr(allocator, what) for allocator in self.allocators)


class Steps(PauseSteps):
    """Every step that an allocator, a caller, a crash or a runtime can take."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.token = 0
        self.names = 0
        self.holders: dict[str, str] = {}
        self.caps: Caps | None = CAPS
        self.abandoned: list[tuple[Claim, str]] = []
        self.allocators = [self.fresh() for _ in range(ALLOCATORS)]
        self.do(commands(world.store).flushdb())
        self.do(self.begin())
        self.data = self.do(dump(world.store))

    def fresh(self) -> Allocator:
        records = RecordStore(self.world.store, int(GRACE_SECONDS * 1e6))
        return Allocator(records, MaintenanceStore(self.world.store, records, SETTINGS), [], [])

    async def begin(self) -> None:
        await self.world.store.refresh_generation()
        for name in NODES:
            info = driver_pb2.GetInfoResponse(name="process", node_id=name)
            for found in [sandbox for sandbox in self.runtime.values() if sandbox.record_labels["node"] == name]:
                if found.record_labels["session"]:
                    await self.allocators[0].maintenance.adopt(info, found)
        assert await self.allocators[0].maintenance.open()
        for allocator in self.allocators:
            await allocator.maintenance.sweep(NODES)

    def name(self, kind: str) -> str:
        # Made-up names would make a replay of the same draws another story.
        self.names += 1
        return f"{kind}_{self.names:04}"

    def granted(self, record: RecordState) -> None:
        """A lease was granted: its token is above all before it, and nobody else had the sandbox."""
        assert record.token > self.token
        self.token = record.token
        assert self.holders.setdefault(record.sandbox_id, record.text("holder")) == record.text("holder")

    def keep_in_runtime(self, record: RecordState) -> None:
        labels = {**record.labels(), "node": record.node_id}
        made = driver_pb2.RuntimeSandbox(sandbox_id=record.sandbox_id, spec=record.spec, record_labels=labels)
        self.runtime[record.sandbox_id] = made

    def at_work(self, at: int, what: str) -> Allocator:
        """Choose an allocator that has something under way."""
        busy = [allocator for allocator in self.allocators if getattr(allocator, what)]
        return busy[at % len(busy)]

    # Callers.

    @rule(
        at=allocators,
        session=st.sampled_from(("s1", "s2", "s3", "s4", "s5")),
        slot=st.sampled_from(("a", "b")),
        template=st.sampled_from(("base", "other")),
        ports=st.sampled_from((0, 0, 3)),
        times=st.sampled_from(TIMES),
    )
    def claim(self, at: int, session: str, slot: str, template: str, ports: int, times: tuple[int, int, str]) -> None:
        user = f"user of {session[1] in '12'}"
        spec = pb.SandboxSpec(template=template, port_count=ports, labels={"session": session})
        batch = BatchTurn(session, int(session[1]), 1) if session in ("s4", "s5") else None
        made = Claim(
            session, slot, self.name("t"), self.name("sb"), times[0], spec,
            replace(want(template, ports, user), batch=batch), times[1], times[2],
            user_id=user, session_id=session,
        )  # fmt: skip
        self.ask(self.allocators[at], made, "")

    @rule(
        at=allocators,
        sessions=st.lists(st.sampled_from(("s1", "s2", "s3", "s4", "s5")), min_size=1, max_size=5),
        idle=st.booleans(),
        ports=st.sampled_from((0, 3)),
    )
    def claim_and_get(self, at: int, sessions: list[str], idle: bool, ports: int) -> None:
        for session in sessions:
            self.claim(at, session, "a", "base", ports, (HOUR_US, HOUR_US if idle else 0, ""))
            for record in list(self.allocators[at].starting):
                if self.do(self.allocators[at].records.started(record.sandbox_id)):
                    self.keep_in_runtime(record)
                self.finish_one(self.allocators[at], record)

    @precondition(anybody("claims"))
    @rule(at=allocators, pick=picks)
    def claim_again(self, at: int, pick: int) -> None:
        allocator = self.at_work(at, "claims")
        made, waited = allocator.claims.pop(pick % len(allocator.claims))
        self.ask(allocator, made, waited)

    def ask(self, allocator: Allocator, made: Claim, waited: str) -> None:
        reply = self.do(allocator.records.claim(made, waited))
        record = reply.record
        if reply.kind in ("queued", "wait"):
            allocator.claims.append((made, record.sandbox_id if record else ""))
            return
        assert record is not None or reply.kind in ("left", "quota")
        if reply.kind == "create" and record is not None:
            if record.sandbox_id == made.sandbox_id and record.sandbox_id not in self.holders:
                self.granted(record)
            allocator.starting.append(record)
            # Its caller waits with it, and may go away.
            allocator.claims.append((made, ""))
        elif reply.kind == "pooled" and record is not None:
            self.granted(record)
            self.keep_in_runtime(record)
            self.do(allocator.records.installed(record.sandbox_id, record.token))

    @precondition(anybody("claims"))
    @rule(at=allocators, pick=picks)
    def leave(self, at: int, pick: int) -> None:
        allocator = self.at_work(at, "claims")
        made, _ = allocator.claims.pop(pick % len(allocator.claims))
        self.do(allocator.records.leave(made))

    @precondition(there_are("READY", "PAUSED", "LOST", "FAILED", "STOPPING"))
    @rule(at=allocators, pick=picks, stale=st.booleans(), ttl_us=st.sampled_from((HOUR_US, 1)))
    def renew(self, at: int, pick: int, stale: bool, ttl_us: int) -> None:
        record = self.some(pick, "READY", "PAUSED", "LOST", "FAILED", "STOPPING")
        if record is not None and record.token:
            reply = self.do(self.allocators[at].records.renew(record.sandbox_id, record.token - stale, ttl_us))
            assert reply.kind == ("lost" if stale or record.state in ("FAILED", "STOPPING") else "renewed")

    @precondition(there_are("STARTING", "READY", "PAUSED", "LOST", "FAILED"))
    @rule(at=allocators, pick=picks, stale=st.booleans())
    def release(self, at: int, pick: int, stale: bool) -> None:
        record = self.some(pick, "PENDING", "STARTING", "READY", "PAUSED", "LOST", "FAILED", "STOPPING")
        if record is not None and record.token:
            records = self.allocators[at].records
            for _ in range(2):
                reply = self.do(records.release(record.sandbox_id, record.token - stale, "released"))
                assert reply.kind == ("lost" if stale else "released")

    @precondition(there_are("READY", "PAUSED"))
    @rule(at=allocators, pick=picks)
    def touch(self, at: int, pick: int) -> None:
        record = self.some(pick, "READY", "PAUSED", "STOPPING")
        if record is not None:
            self.do(self.allocators[at].records.touch([record.sandbox_id, "sb_unknown"]))

    # Allocators at work.

    @precondition(anybody("starting"))
    @rule(at=allocators, pick=picks)
    def start(self, at: int, pick: int) -> None:
        allocator = self.at_work(at, "starting")
        record = allocator.starting[pick % len(allocator.starting)]
        if self.do(allocator.records.started(record.sandbox_id)):
            self.keep_in_runtime(record)

    @precondition(anybody("starting"))
    @rule(at=allocators, pick=picks)
    def finish(self, at: int, pick: int) -> None:
        allocator = self.at_work(at, "starting")
        self.finish_one(allocator, allocator.starting[pick % len(allocator.starting)])

    def finish_one(self, allocator: Allocator, record: RecordState) -> None:
        allocator.starting.remove(record)
        done, now = self.do(allocator.records.ready(record.sandbox_id, driver_pb2.RuntimeSandbox()))
        assert not done or record.sandbox_id in self.runtime
        if not done and (now.state not in ("PENDING", "STARTING", "READY") or now.owner == allocator.records.owner):
            self.runtime.pop(record.sandbox_id, None)
            self.do(allocator.records.failed(record.sandbox_id, SandboxStartFailed("it ended")))

    @precondition(anybody("starting"))
    @rule(at=allocators, pick=picks)
    def start_and_finish(self, at: int, pick: int) -> None:
        self.start(at, pick)
        self.finish(at, pick)

    @precondition(anybody("starting"))
    @rule(at=allocators, pick=picks, again=st.booleans())
    def fail(self, at: int, pick: int, again: bool) -> None:
        allocator = self.at_work(at, "starting")
        record = allocator.starting.pop(pick % len(allocator.starting))
        self.runtime.pop(record.sandbox_id, None)
        if not again:
            self.do(allocator.records.failed(record.sandbox_id, SandboxStartFailed("no")))
            return
        wanted = want(record.spec.template, record.spec.port_count, "")
        moved = self.do(allocator.records.retry(record.sandbox_id, wanted, [record.node_id], SandboxStartFailed("no")))
        if moved is not None:
            assert moved.node_id in NODES
            allocator.starting.append(moved)

    @rule(at=allocators, template=st.sampled_from(("base", "other")))
    def fill(self, at: int, template: str) -> None:
        allocator = self.allocators[at]
        spec = pb.SandboxSpec(template=template)
        record = self.do(allocator.records.fill(self.name("sb"), spec, want(template, 0, ""), 2))
        if record is not None:
            allocator.starting.append(record)

    @rule(at=allocators, kept=st.integers(0, 2))
    def drain(self, at: int, kept: int) -> None:
        self.do(self.allocators[at].records.drain({"key-base-0": kept}))

    @precondition(there_are("STOPPING"))
    @rule(at=allocators, finished=st.booleans())
    def delete(self, at: int, finished: bool) -> None:
        maintenance = self.allocators[at].maintenance
        taken = self.do(maintenance.take_stopping(0, 0))
        if taken is not None:
            self.runtime.pop(taken.sandbox_id, None)
            if finished:
                assert self.do(maintenance.gone(taken.sandbox_id))
                assert not self.do(maintenance.gone(taken.sandbox_id))
            else:
                self.do(maintenance.defer(taken.sandbox_id, 0, "busy"))

    @rule(at=allocators)
    def sweep(self, at: int) -> None:
        self.do(self.allocators[at].maintenance.sweep(NODES))

    # What goes wrong.

    @rule(at=allocators)
    def crash(self, at: int) -> None:
        dead = self.allocators[at]
        self.abandoned += dead.claims
        self.allocators[at] = self.fresh()
        self.do(commands(self.world.store).zrem(self.world.store.key("allocators"), dead.records.owner))
        self.do(self.allocators[at].maintenance.sweep(NODES))

    @precondition(there_are("STARTING", "READY", "PAUSED"))
    @rule(at=allocators, pick=picks)
    def end_unexpectedly(self, at: int, pick: int) -> None:
        record = self.some(pick, "STARTING", "READY", "PAUSED")
        if record is not None:
            self.runtime.pop(record.sandbox_id, None)
            self.do(self.allocators[at].maintenance.lost(record.sandbox_id, "signal 9"))

    @precondition(lambda self: self.runtime)
    @rule(keep=st.booleans())
    def lose_the_store(self, keep: bool) -> None:
        if not keep:
            # One time in two it is left as it is: else little would ever be built up.
            return
        before = {one.sandbox_id for one in self.runtime.values() if one.record_labels["session"]}
        self.do(commands(self.world.store).flushdb())
        with pytest.raises(Recovering):
            self.do(self.allocators[1].records.was_deleted("sb_any"))
        self.caps = None
        self.do(self.begin())
        found = self.do(dump(self.world.store)).records
        places = {(one.record_labels["session"], one.record_labels["slot"]) for one in self.runtime.values()}
        assert set(found) <= before
        assert {(fields["session"], fields["slot"]) for fields in found.values()} == places - {("", "")}
        for one in self.runtime.copy():
            if one not in found:
                del self.runtime[one]

    @invariant()
    def nothing_contradicts_itself(self) -> None:
        self.data = self.do(dump(self.world.store))
        check(self.data, self.caps)

    def teardown(self) -> None:
        """When everybody has gone and every deadline has passed, nothing is left."""
        last = self.fresh()
        # A dead allocator's tickets are dropped after some seconds, which no step can bring about.
        for made, _ in [*self.abandoned, *(claim for allocator in self.allocators for claim in allocator.claims)]:
            self.do(last.records.leave(made))
        self.do(commands(self.world.store).delete(self.world.store.key("allocators")))
        for _ in range(3):
            self.do(last.maintenance.sweep(NODES))
            for sandbox_id, fields in self.do(dump(self.world.store)).records.items():
                if fields["holder"]:
                    self.do(last.records.release(sandbox_id, int(fields["token"]), "the end"))
            self.do(last.records.drain({}))
            while (taken := self.do(last.maintenance.take_stopping(HOUR_US, HOUR_US))) is not None:
                self.do(last.maintenance.gone(taken.sandbox_id))
        left = self.do(dump(self.world.store))
        check(left, CAPS)
        assert not left.records
        kinds = {name.partition(":")[0] for name in left.keys}
        kept = {
            "token",
            "generation",
            "open",
            "port_cursor",
            "allocators",
            "nodes_seen",
            "swept",
            "tomb",
            "left",
            "events",
            "quota",
            "quotas",
        }
        assert kinds <= kept | {"user", "user_session", "pools", "usage"}


@pytest.fixture
def world(tmp_path: Path) -> Generator[World]:
    """Run the embedded server, in a loop that machines drive."""
    configured = StoreSettings(mesh_id="m", directory=tmp_path / "data", socket=tmp_path / "run" / "s")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        store = runner.run(stack.enter_async_context(open_store(configured)))
        try:
            yield World(store, runner)
        finally:
            runner.run(stack.aclose())


def test_no_order_of_steps_crashes_or_losses_breaks_what_must_hold(world: World) -> None:
    class Machine(Steps):
        def __init__(self) -> None:
            super().__init__(world)

    chosen = settings(
        max_examples=18, stateful_step_count=50, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )  # fmt: skip
    run_state_machine_as_test(Machine, settings=chosen)
