"""Changes of records: each is one script of the store, with types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandmeshError, to_detail
from sandmeshd.allocator.records.allocator_names import new_name
from sandmeshd.allocator.records.record_reader import RecordReader, label_names
from sandmeshd.allocator.records.records import NANO, RecordState, record_from
from sandmeshd.store import Store
from sandmeshd.tenants.quotas import ReachedQuota

PAGE = 100
"""How many records one script changes at most: the store runs one script at a time, and claims wait meanwhile."""


@dataclass(frozen=True)
class NodeWant:
    """A node that could take a sandbox: the most it may have, and its range of ports, both 0 where it has none.

    `own_ports` is how many ports each sandbox takes there beside those that it requests.
    """

    id: str
    driver: str
    limit: int
    first: int
    last: int
    own_ports: int = 0


@dataclass(frozen=True)
class BatchTurn:
    """How a batch's request waits: its job, that job's turns for one of another, and the starts that a node has."""

    job: str
    share: int
    starts: int


@dataclass(frozen=True)
class Want:
    """What a request needs, as scripts read it. A `template_limit` or `caller_limit` of 0 is none.

    `partial` means that other nodes could take it too: it is repeated with all of them before it waits.
    A `batch` has it wait behind all requests without one.
    """

    template: str
    spec_key: str
    ports: int
    limit: int
    template_limit: int
    nodes: Sequence[NodeWant]
    caller: str = ""
    caller_limit: int = 0
    memory_bytes: int = 0
    cpu_millis: int = 0
    partial: bool = False
    batch: BatchTurn | None = None


@dataclass(frozen=True)
class Claim:
    """One request for a sandbox, the same at each try."""

    session: str
    slot: str
    ticket: str
    sandbox_id: str
    ttl_us: int
    spec: pb.SandboxSpec
    want: Want
    idle_us: int = 0
    on_idle: str = ""
    """"pause", or empty for a release."""
    auto_resume: str = ""
    """"no" where requests do not resume it."""
    user_id: str = ""
    session_id: str = ""
    workspace: str = ""
    profile: str = ""
    """What its browser's profile is saved under; `workspace` names it, too."""


@dataclass(frozen=True)
class Reply:
    """The result of a change: its kind, the record where there is one, and the limit that a claim is waiting for."""

    kind: str
    record: RecordState | None = None
    bound: str = ""
    quota: ReachedQuota | None = None


@dataclass(frozen=True)
class PauseOutcome:
    """What a pause keeps, as its record has it: the mode's name, and what the driver reports about memory."""

    mode: str
    memory: pb.PauseMemory | None = None

    def memory_text(self) -> str:
        """Return the memory before and after in bytes, and the note; empty where the driver reports none."""
        if self.memory is None:
            return ""
        return f"{self.memory.before_bytes} {self.memory.after_bytes} {self.memory.note}"


class RecordStore(RecordReader):
    """The records of a mesh, with every change that a request or a start makes."""

    def __init__(self, store: Store, grace_us: int, cost_per_day: float = 0.0) -> None:
        super().__init__(store)
        self._grace_us = grace_us
        self._cost_limit = round(cost_per_day * NANO)
        self.owner = new_name()
        """Names this allocator in the records of what it is starting."""

    async def claim(self, claim: Claim, waited: str) -> Reply:
        """Claim a sandbox for the slot, take a place in the queue, or return what to wait for, or to widen the want."""
        arguments = {
            **self._creation(claim.sandbox_id, claim.want),
            "session": claim.session,
            "slot": claim.slot,
            "ticket": claim.ticket,
            "ttl_us": claim.ttl_us,
            "idle_us": claim.idle_us,
            "on_idle": claim.on_idle,
            "auto_resume": claim.auto_resume,
            "user": claim.user_id,
            "session_name": claim.session_id,
            "workspace": claim.workspace,
            "profile": claim.profile,
            "labels": label_names(claim.spec.labels),
            "actor": claim.user_id or "anonymous",
            "waited": waited,
        }
        kind, *rest = await self._store.run("claim", arguments, pb.Sandbox(spec=claim.spec).SerializeToString())
        name = kind.decode()
        if name == "queued":
            return Reply(name, bound=rest[0].decode(), quota=_reached(rest[1:]))
        if name == "quota":
            return Reply(name, quota=_reached(rest))
        return Reply(name, record_from(rest[0]) if rest else None)

    def _creation(self, sandbox_id: str, want: Want) -> dict[str, object]:
        return {
            "owner": self.owner,
            "grace_us": self._grace_us,
            "sandbox_id": sandbox_id,
            "want": _want_arguments(want),
            "cost_limit": self._cost_limit,
        }

    async def leave(self, claim: Claim) -> str:
        """Withdraw a claim whose client disconnected; return the id of the sandbox that was stopped for it, or ""."""
        arguments = {"session": claim.session, "slot": claim.slot, "ticket": claim.ticket}
        stopped = await self._store.run("leave", arguments)
        return stopped[0].decode() if stopped else ""

    async def fill(self, sandbox_id: str, spec: pb.SandboxSpec, want: Want, size: int) -> RecordState | None:
        """Create a PENDING record for a pool, where it lacks one and there is capacity."""
        arguments = {**self._creation(sandbox_id, want), "size": size}
        made, *rest = await self._store.run("fill", arguments, pb.Sandbox(spec=spec).SerializeToString())
        return record_from(rest[0]) if made else None

    async def drain(self, sizes: Mapping[str, int]) -> int:
        """Stop the unused sandboxes of other pools and those above a pool's maximum; return how many there were."""
        total = 0
        while True:
            stopped = int((await self._store.run("drain", {"sizes": dict(sizes), "most": PAGE}))[0])
            total += stopped
            if stopped < PAGE:
                return total

    async def evacuate(self, reason: str) -> int:
        """Stop every sandbox and drop all pools; return how many were stopped."""
        total, after = 0, ""
        while True:
            stopped, last = await self._store.run("evacuate", {"reason": reason, "after": after, "limit": PAGE})
            total, after = total + int(stopped), last.decode()
            if not after:
                return total

    async def started(self, sandbox_id: str) -> bool:
        """PENDING -> STARTING; False where it is no longer this allocator's to start."""
        return bool((await self._store.run("started", {"id": sandbox_id, "owner": self.owner}))[0])

    async def ready(
        self, sandbox_id: str, access: driver_pb2.RuntimeSandbox, phases: Mapping[str, float] = MappingProxyType({})
    ) -> tuple[bool, RecordState]:
        """STARTING -> READY; False where it is no longer STARTING here, or has ended.

        `phases` is what its create's time went to, in seconds.
        """
        took = " ".join(f"{name}={round(seconds * 1e6)}" for name, seconds in phases.items())
        done, pairs = await self._store.run(
            "ready",
            {"id": sandbox_id, "owner": self.owner, "price": access.nano_price, "phases": took},
            access.SerializeToString(),
        )
        return bool(done), record_from(pairs)

    async def retry(
        self, sandbox_id: str, want: Want, avoided: Sequence[str], error: SandmeshError
    ) -> RecordState | None:
        """STARTING -> PENDING on another node; None where it had moved on, or no node has room and it is FAILED."""
        arguments = {
            "id": sandbox_id, "owner": self.owner, "want": _want_arguments(want), "avoided": list(avoided),
            "reason": error.message,
        }  # fmt: skip
        moved, *rest = await self._store.run("retry", arguments, to_detail(error).SerializeToString())
        return record_from(rest[0]) if moved else None

    async def move_port(self, sandbox_id: str, node: NodeWant, port: int, rest_us: int) -> RecordState | None:
        """Lease another port to a STARTING sandbox and withhold the old one for a while; None where there is none."""
        arguments = {
            "id": sandbox_id, "owner": self.owner, "node": asdict(node), "port": str(port), "rest_us": rest_us,
        }  # fmt: skip
        moved, *rest = await self._store.run("move_port", arguments)
        return record_from(rest[0]) if moved else None

    async def installed(self, sandbox_id: str, token: int) -> tuple[bool, RecordState]:
        """Record that the agent has the token; False where the lease ended meanwhile."""
        done, pairs = await self._store.run("installed", {"id": sandbox_id, "token": str(token)})
        return bool(done), record_from(pairs)

    async def failed(self, sandbox_id: str, error: SandmeshError) -> bool:
        """PENDING or STARTING -> FAILED; False where it was neither."""
        arguments = {"id": sandbox_id, "owner": self.owner, "reason": error.message}
        return bool((await self._store.run("failed", arguments, to_detail(error).SerializeToString()))[0])

    async def renew(self, sandbox_id: str, token: int, ttl_us: int) -> Reply:
        """Extend a lease; the kind is renewed, missing or lost."""
        arguments = {"id": sandbox_id, "token": str(token), "ttl_us": ttl_us, "actor": "holder"}
        return _reply(await self._store.run("renew", arguments))

    async def release(self, sandbox_id: str, token: int, reason: str, actor: str = "mesh") -> Reply:
        """Record that it is to be deleted; the kind is released or lost."""
        arguments = {"id": sandbox_id, "token": str(token), "reason": reason, "actor": actor}
        return _reply(await self._store.run("release", arguments))

    async def intend(self, sandbox_id: str, token: int, target: str) -> Reply:
        """Record that it is to be PAUSED or READY; the kind is intended, done, missing, lost, busy or quota."""
        arguments = {
            "id": sandbox_id, "token": str(token), "target": target, "owner": self.owner, "grace_us": self._grace_us,
        }  # fmt: skip
        answer = await self._store.run("intend", arguments)
        return replace(_reply(answer), quota=_reached(answer[2:]))

    async def settle(self, sandbox_id: str, state: str, reason: str = "", actor: str = "mesh") -> RecordState | None:
        """READY <-> PAUSED, as its runtime has it; None where another change is in progress, or it is neither."""
        arguments = {
            "id": sandbox_id, "state": state, "reason": reason, "owner": self.owner, "grace_us": self._grace_us,
            "actor": actor,
        }  # fmt: skip
        done, *rest = await self._store.run("settle", arguments)
        return record_from(rest[0]) if done else None

    async def settle_pause(self, sandbox_id: str, reason: str, actor: str, kept: PauseOutcome) -> RecordState | None:
        """READY -> PAUSED, with what the pause keeps; None as `settle`."""
        arguments = {
            "id": sandbox_id, "state": "PAUSED", "reason": reason, "owner": self.owner, "grace_us": self._grace_us,
            "actor": actor, "mode": kept.mode, "memory": kept.memory_text(),
        }  # fmt: skip
        done, *rest = await self._store.run("settle", arguments)
        return record_from(rest[0]) if done else None

    async def touch(self, sandbox_ids: Sequence[str]) -> int:
        """Restart idle timeouts; return how many of the sandboxes have one."""
        return int((await self._store.run("touch", {"ids": list(sandbox_ids)}))[0])


def _want_arguments(want: Want) -> dict[str, object]:
    # `asdict` copies everything that is inside as deep as it goes.
    # In Lua, a null is true.
    batch = vars(want.batch) if want.batch else False
    return {**vars(want), "nodes": [vars(node) for node in want.nodes], "batch": batch}


def _reached(words: Sequence[bytes]) -> ReachedQuota | None:
    if not words:
        return None
    kind, name, quota, used, limit = (word.decode() for word in words)
    return ReachedQuota(kind, name, quota, int(used), int(limit))


def _reply(result: Sequence[bytes | Sequence[bytes]]) -> Reply:
    kind, *rest = result
    name = kind.decode() if isinstance(kind, bytes) else ""
    pairs = rest[0] if rest and not isinstance(rest[0], bytes) else None
    return Reply(name, record_from(pairs) if pairs else None)
