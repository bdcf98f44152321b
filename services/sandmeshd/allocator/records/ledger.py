"""The steps that records take: each one script of the store, under its name and with its types."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandmeshError, to_detail
from sandmeshd.allocator.records.records import Record, record_from
from sandmeshd.store import Store


@dataclass(frozen=True)
class NodeWant:
    """A node that could take a sandbox: the most it may have, and its range of ports, both 0 where it has none.

    `own_ports` is how many ports each sandbox takes there beside those that it asks for.
    """

    id: str
    driver: str
    limit: int
    first: int
    last: int
    own_ports: int = 0


@dataclass(frozen=True)
class Want:
    """What a request needs, as scripts read it. A `template_limit` or `caller_limit` of 0 is none."""

    template: str
    spec_key: str
    ports: int
    limit: int
    template_limit: int
    nodes: Sequence[NodeWant]
    caller: str = ""
    caller_limit: int = 0


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
    user_id: str = ""
    session_id: str = ""
    workspace: str = ""


@dataclass(frozen=True)
class Reply:
    """What the store says to a step: its kind, the record where there is one, and what stands in the way of a claim."""

    kind: str
    record: Record | None = None
    bound: str = ""


@dataclass(frozen=True)
class Capacity:
    """How full the mesh is; `next_expire_us` is 0 where no lease runs. Counts are by template, node and caller."""

    used: int
    next_expire_us: int
    pooled: Mapping[str, int]
    templates: Mapping[str, int] = field(default_factory=dict[str, int])
    nodes: Mapping[str, int] = field(default_factory=dict[str, int])
    callers: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Census:
    """How many leases are in force, and how many requests queue."""

    leases: int
    queued: int


class Ledger:
    """The records of a mesh, and every change that those who use them make."""

    def __init__(self, store: Store, grace_us: int) -> None:
        self._store = store
        self._grace_us = grace_us
        self.owner = secrets.token_hex(8)
        """Names this allocator in the records of what it is starting."""

    async def claim(self, claim: Claim, waited: str) -> Reply:
        """Give the slot a sandbox, take a place in the queue, or say what to wait for."""
        arguments = {
            **self._creation(claim.sandbox_id, claim.want),
            "session": claim.session,
            "slot": claim.slot,
            "ticket": claim.ticket,
            "ttl_us": claim.ttl_us,
            "idle_us": claim.idle_us,
            "user": claim.user_id,
            "session_name": claim.session_id,
            "workspace": claim.workspace,
            "labels": label_names(claim.spec.labels),
            "actor": claim.user_id or "anonymous",
            "waited": waited,
        }
        kind, *rest = await self._store.run("claim", arguments, pb.Sandbox(spec=claim.spec).SerializeToString())
        name = kind.decode()
        if name == "queued":
            return Reply(name, bound=rest[0].decode())
        return Reply(name, record_from(rest[0]) if rest else None)

    def _creation(self, sandbox_id: str, want: Want) -> dict[str, object]:
        return {"owner": self.owner, "grace_us": self._grace_us, "sandbox_id": sandbox_id, "want": _words(want)}

    async def leave(self, claim: Claim) -> str:
        """Take back a claim whose caller went away; give the id of the sandbox that was stopped for it, or ""."""
        words = {"session": claim.session, "slot": claim.slot, "ticket": claim.ticket}
        stopped = await self._store.run("leave", words)
        return stopped[0].decode() if stopped else ""

    async def fill(self, sandbox_id: str, spec: pb.SandboxSpec, want: Want, size: int) -> Record | None:
        """Make a PENDING record for a pool, where it lacks one and there is room."""
        words = {**self._creation(sandbox_id, want), "size": size}
        made, *rest = await self._store.run("fill", words, pb.Sandbox(spec=spec).SerializeToString())
        return record_from(rest[0]) if made else None

    async def drain(self, sizes: Mapping[str, int]) -> int:
        """Stop the unused sandboxes of other pools and what is more than a pool's most; give how many there were."""
        return int((await self._store.run("drain", {"sizes": dict(sizes)}))[0])

    async def evacuate(self, reason: str) -> int:
        """Stop every sandbox and give up all pools; give how many were stopped."""
        return int((await self._store.run("evacuate", {"reason": reason}))[0])

    async def started(self, sandbox_id: str) -> bool:
        """PENDING -> STARTING; False where it is no longer this allocator's to start."""
        return bool((await self._store.run("started", {"id": sandbox_id, "owner": self.owner}))[0])

    async def ready(self, sandbox_id: str, access: driver_pb2.RuntimeSandbox) -> tuple[bool, Record]:
        """STARTING -> READY; False where it is no longer STARTING here, or has ended."""
        done, pairs = await self._store.run(
            "ready", {"id": sandbox_id, "owner": self.owner}, access.SerializeToString()
        )
        return bool(done), record_from(pairs)

    async def retry(self, sandbox_id: str, want: Want, avoided: Sequence[str], error: SandmeshError) -> Record | None:
        """STARTING -> PENDING on another node; None where it had moved on, or no node has room and it is FAILED."""
        words = {
            "id": sandbox_id, "owner": self.owner, "want": _words(want), "avoided": list(avoided),
            "reason": error.message,
        }  # fmt: skip
        moved, *rest = await self._store.run("retry", words, to_detail(error).SerializeToString())
        return record_from(rest[0]) if moved else None

    async def clashed(self, sandbox_id: str, node: NodeWant, port: int, rest_us: int) -> Record | None:
        """Give a sandbox that is STARTING another port, and nobody that one for a while; None where there is none."""
        words = {
            "id": sandbox_id, "owner": self.owner, "node": asdict(node), "port": str(port), "rest_us": rest_us,
        }  # fmt: skip
        moved, *rest = await self._store.run("clashed", words)
        return record_from(rest[0]) if moved else None

    async def installed(self, sandbox_id: str, token: int) -> tuple[bool, Record]:
        """Note that the agent has the token; False where the lease has gone meanwhile."""
        done, pairs = await self._store.run("installed", {"id": sandbox_id, "token": str(token)})
        return bool(done), record_from(pairs)

    async def failed(self, sandbox_id: str, error: SandmeshError) -> bool:
        """PENDING or STARTING -> FAILED; False where it was neither."""
        words = {"id": sandbox_id, "owner": self.owner, "reason": error.message}
        return bool((await self._store.run("failed", words, to_detail(error).SerializeToString()))[0])

    async def renew(self, sandbox_id: str, token: int, ttl_us: int) -> Reply:
        """Move a lease's deadline; the kind is renewed, missing or lost."""
        words = {"id": sandbox_id, "token": str(token), "ttl_us": ttl_us, "actor": "holder"}
        return _reply(await self._store.run("renew", words))

    async def release(self, sandbox_id: str, token: int, reason: str, actor: str = "mesh") -> Reply:
        """Record that it is to be deleted; the kind is released or lost."""
        words = {"id": sandbox_id, "token": str(token), "reason": reason, "actor": actor}
        return _reply(await self._store.run("release", words))

    async def intend(self, sandbox_id: str, token: int, target: str) -> Reply:
        """Record that it is to be PAUSED or READY; the kind is intended, done, missing, lost or busy."""
        words = {
            "id": sandbox_id, "token": str(token), "target": target, "owner": self.owner, "grace_us": self._grace_us,
        }  # fmt: skip
        return _reply(await self._store.run("intend", words))

    async def settle(self, sandbox_id: str, state: str, reason: str = "", actor: str = "mesh") -> Record | None:
        """READY <-> PAUSED, as its runtime has it; None where somebody else is at it, or it is neither."""
        words = {
            "id": sandbox_id, "state": state, "reason": reason, "owner": self.owner, "grace_us": self._grace_us,
            "actor": actor,
        }  # fmt: skip
        done, *rest = await self._store.run("settle", words)
        return record_from(rest[0]) if done else None

    async def touch(self, sandbox_ids: Sequence[str]) -> int:
        """Begin idle times anew; give how many of the sandboxes have one."""
        return int((await self._store.run("touch", {"ids": list(sandbox_ids)}))[0])

    async def read(self, sandbox_id: str) -> Record | None:
        """Read a record, or None where there is none."""
        fields = await self._store.hash("sandbox", sandbox_id)
        return Record(fields) if fields else None

    async def page(self, session: str, labels: Mapping[str, str], after: str, limit: int) -> list[Record]:
        """Read records by id: of a session, with all of some labels, or of all where both are empty."""
        words = {"session": session, "labels": label_names(labels), "after": after, "limit": limit}
        return [record_from(pairs) for pairs in await self._store.run("list", words)]

    async def pooled(self, limit: int) -> list[Record]:
        """Read the records of what waits in pools."""
        return [record_from(pairs) for pairs in await self._store.run("pooled", {"limit": limit})]

    async def capacity(self) -> Capacity:
        """Say how full the mesh is."""
        used, soonest, *counts = await self._store.run("capacity", {})
        return Capacity(int(used), int(float(soonest)), *(_counts(flat) for flat in counts))

    async def census(self) -> Census:
        """Count leases and the queue."""
        leases, queued = await self._store.run("census", {})
        return Census(int(leases), int(queued))

    async def is_buried(self, sandbox_id: str) -> bool:
        """Say whether it was here and was deleted, not too long ago.

        Raises:
            Recovering: Nothing can be said while records are being rebuilt.
        """
        return bool((await self._store.run("buried", {"id": sandbox_id}))[0])


def label_names(labels: Mapping[str, str]) -> list[str]:
    """Name each label in its index, key and value told apart whatever characters they have."""
    return [json.dumps([key, value]) for key, value in sorted(labels.items())]


def _words(want: Want) -> dict[str, object]:
    # `asdict` copies everything that is inside as deep as it goes.
    return {**vars(want), "nodes": [vars(node) for node in want.nodes]}


def _reply(answer: Sequence[bytes | Sequence[bytes]]) -> Reply:
    kind, *rest = answer
    name = kind.decode() if isinstance(kind, bytes) else ""
    pairs = rest[0] if rest and not isinstance(rest[0], bytes) else None
    return Reply(name, record_from(pairs) if pairs else None)


def _counts(flat: Sequence[bytes | int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, count in zip(flat[::2], flat[1::2], strict=True):
        key = name.decode() if isinstance(name, bytes) else str(name)
        counts[key] = counts.get(key, 0) + int(count)
    return counts
