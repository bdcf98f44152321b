"""The steps of test_states.py that pause and resume sandboxes, with what they stand on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from sandmesh.api.driver.v1 import driver_pb2
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.tenants.quotas import QuotaRecords
from tests.unit.allocator.invariants import Data, dump
from tests.unit.allocator.states_world import Allocator, World

T = TypeVar("T")

ALLOCATORS = 3
RUNTIME_STATES = {"PAUSED": driver_pb2.RUNTIME_STATE_PAUSED, "READY": driver_pb2.RUNTIME_STATE_RUNNING}

allocators = st.integers(0, ALLOCATORS - 1)
picks = st.integers(0, 999)


def there_are(*states: str) -> Callable[[PauseSteps], bool]:
    """Give the condition that a record is in one of the states."""
    return lambda self: bool(self.data.ids(*states))


class PauseSteps(RuleBasedStateMachine):
    """Pauses and resumes by several allocators, within quotas, and what a node tells of them."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.runtime: dict[str, driver_pb2.RuntimeSandbox] = {}
        self.allocators: list[Allocator] = []
        self.data = Data({})

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.world.run(work)

    def some(self, pick: int, *states: str) -> RecordState | None:
        """Choose a record in one of the states."""
        ids = sorted(self.data.ids(*states))
        return self.do(self.allocators[0].records.read(ids[pick % len(ids)])) if ids else None

    @precondition(there_are("READY", "PAUSED"))
    @rule(
        at=allocators,
        pick=picks,
        state=st.sampled_from(("PAUSED", "READY")),
        seen=st.sampled_from(("settled", "settled", "driver", "nothing")),
    )
    def pause_or_resume(self, at: int, pick: int, state: str, seen: str) -> None:
        """Pause or resume one, up to its end, or to a crash after, or before, the driver did it."""
        record = self.some(pick, "READY", "PAUSED")
        if record is None or not record.token:
            return
        records = self.allocators[at].records
        reply = self.do(records.intend(record.sandbox_id, record.token, state))
        if reply.kind != "intended":
            assert reply.kind in ("busy", "quota" if reply.quota else "done")
            return
        self.within_quotas(record, state)
        if seen != "nothing" and record.sandbox_id in self.runtime:
            self.runtime[record.sandbox_id].state = RUNTIME_STATES[state]
        if seen == "settled":
            assert self.do(records.settle(record.sandbox_id, state)) is not None

    def within_quotas(self, record: RecordState, state: str) -> None:
        """Hold that a change of pause was let through by quotas that have room for it."""
        data = self.do(dump(self.world.store))
        owner = f"project:{record.text('project')}"
        limits, resting = data.get(f"quota:{owner}"), set(data.get(f"resting:{owner}"))
        changed = (record.text("intent") or record.state) != state
        if changed and state == "PAUSED" and "paused_sandboxes" in limits:
            assert len(resting) <= int(limits["paused_sandboxes"])
        if changed and state == "READY" and len(limits) == 2:
            assert len(set(data.get(owner)) - resting) <= int(limits["sandboxes"])

    @rule(sandboxes=st.sampled_from((None, None, 2, 4)), paused=st.sampled_from((None, 1, 2)))
    def set_quotas(self, sandboxes: int | None, paused: int | None) -> None:
        limits = {"sandboxes": sandboxes, "paused_sandboxes": paused}
        kept = {name: limit for name, limit in limits.items() if limit is not None}
        self.do(QuotaRecords(self.world.store).set("project", "default", kept, sorted(set(limits) - set(kept))))

    @precondition(there_are("READY", "PAUSED"))
    @rule(at=allocators, pick=picks)
    def compare(self, at: int, pick: int) -> None:
        """Record whether one is paused as its runtime has it, as a comparison with its node does."""
        record = self.some(pick, "READY", "PAUSED")
        found = self.runtime.get(record.sandbox_id) if record is not None else None
        if record is not None and found is not None:
            state = "PAUSED" if found.state == driver_pb2.RUNTIME_STATE_PAUSED else "READY"
            settled = self.do(self.allocators[at].records.settle(record.sandbox_id, state))
            assert settled is None or (settled.state, settled.text("intent")) == (state, "")
