"""The steps that records take: each one script of the store, under its name and with its types."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandboxStartFailed, SandmeshError, to_detail
from sandmeshd.allocator.records import Record, record_from
from sandmeshd.store import Store


@dataclass(frozen=True)
class NodeWant:
    """A node that could take a sandbox: the most it may have, and its range of ports, both 0 where it has none."""

    id: str
    driver: str
    limit: int
    first: int
    last: int


@dataclass(frozen=True)
class Want:
    """What a request needs, as scripts read it. A `template_limit` of 0 is none."""

    template: str
    spec_key: str
    ports: int
    limit: int
    template_limit: int
    nodes: Sequence[NodeWant]


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


@dataclass(frozen=True)
class Reply:
    """What the store says to a claim: its kind, the record where there is one, and how full the mesh is when queued."""

    kind: str
    record: Record | None = None
    used: int = 0
    next_expire_us: int = 0


@dataclass(frozen=True)
class Capacity:
    """How full the mesh is; `next_expire_us` is 0 where no lease runs."""

    used: int
    next_expire_us: int
    pooled: dict[str, int]


class Ledger:
    """The records of a mesh, and every change that they may take."""

    def __init__(self, store: Store) -> None:
        self._store = store
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
            "waited": waited,
        }
        kind, *rest = await self._store.run("claim", arguments, pb.Sandbox(spec=claim.spec).SerializeToString())
        name = kind.decode()
        if name == "queued":
            return Reply(name, used=int(rest[0]), next_expire_us=int(float(rest[1])))
        return Reply(name, record_from(rest[0]) if rest else None)

    def _creation(self, sandbox_id: str, want: Want) -> dict[str, object]:
        shared = {"owner": self.owner, "generation": self._store.generation}
        return {"sandbox_id": sandbox_id, "id": sandbox_id, "want": asdict(want), **shared}

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

    async def drain(self, wanted: Sequence[str]) -> int:
        """Stop the unused sandboxes of all other pools; give how many there were."""
        return int((await self._store.run("drain", {"wanted": list(wanted)}))[0])

    async def evacuate(self, reason: str) -> int:
        """Stop every sandbox and give up all pools; give how many were stopped."""
        return int((await self._store.run("evacuate", {"reason": reason}))[0])

    async def started(self, sandbox_id: str) -> bool:
        """PENDING -> STARTING; False where it is no longer this allocator's to start."""
        return bool((await self._store.run("started", {"id": sandbox_id, "owner": self.owner}))[0])

    async def ready(self, sandbox_id: str, access: driver_pb2.RuntimeSandbox, ttl_us: int) -> tuple[bool, Record]:
        """STARTING -> READY; False where it is no longer STARTING, and the sandbox has to go."""
        words = {"id": sandbox_id, "owner": self.owner, "ttl_us": ttl_us}
        done, pairs = await self._store.run("ready", words, access.SerializeToString())
        return bool(done), record_from(pairs)

    async def installed(self, sandbox_id: str, token: int) -> tuple[bool, Record]:
        """Note that the agent has the token; False where the lease has gone meanwhile."""
        done, pairs = await self._store.run("installed", {"id": sandbox_id, "token": str(token)})
        return bool(done), record_from(pairs)

    async def failed(self, sandbox_id: str, error: SandmeshError) -> bool:
        """PENDING or STARTING -> FAILED; False where it was neither."""
        words = {"id": sandbox_id, "owner": self.owner, "reason": error.message}
        return bool((await self._store.run("failed", words, to_detail(error).SerializeToString()))[0])

    async def lost(self, sandbox_id: str, reason: str) -> bool:
        """READY, PAUSED or STARTING -> LOST; False where it was none of them."""
        words = {"id": sandbox_id, "reason": reason, "starting": True}
        return bool((await self._store.run("lost", words))[0])

    async def renew(self, sandbox_id: str, token: int, ttl_us: int) -> Reply:
        """Move a lease's deadline; the kind is renewed, missing or lost."""
        words = {"id": sandbox_id, "token": str(token), "ttl_us": ttl_us}
        kind, *rest = await self._store.run("renew", words)
        return Reply(kind.decode(), record_from(rest[0]) if rest else None)

    async def release(self, sandbox_id: str, token: int, reason: str) -> Reply:
        """Record that it is to be deleted; the kind is released or lost."""
        words = {"id": sandbox_id, "token": str(token), "reason": reason}
        kind, *rest = await self._store.run("release", words)
        return Reply(kind.decode(), record_from(rest[0]) if rest else None)

    async def read(self, sandbox_id: str) -> Record | None:
        """Read a record, or None where there is none."""
        fields = await self._store.hash("sandbox", sandbox_id)
        return Record(fields) if fields else None

    async def page(self, session: str, after: str, limit: int) -> list[Record]:
        """Read records by id, of a session or of all where it is empty."""
        words = {"session": session, "after": after, "limit": limit}
        return [record_from(pairs) for pairs in await self._store.run("list", words)]

    async def capacity(self) -> Capacity:
        """Say how full the mesh is."""
        used, soonest, *pools = await self._store.run("capacity", {})
        pooled: dict[str, int] = {}
        for template, count in zip(pools[::2], pools[1::2], strict=True):
            pooled[template.decode()] = pooled.get(template.decode(), 0) + int(count)
        return Capacity(int(used), int(float(soonest)), pooled)

    async def sweep(self, grace_us: int) -> tuple[int, int]:
        """Say that this allocator lives; give how many leases ran out and how many starts were abandoned."""
        message = "the allocator that started the sandbox ended; nothing is left of it, try again"
        failure = to_detail(SandboxStartFailed(message, {"detail": "its allocator ended"})).SerializeToString()
        expired, abandoned = await self._store.run("sweep", {"owner": self.owner, "grace_us": grace_us}, failure)
        return int(expired), int(abandoned)

    async def farewell(self) -> None:
        """Say that this allocator ends."""
        await self._store.run("farewell", {"owner": self.owner})

    async def take_stopping(self, hold_us: int) -> tuple[str, str] | None:
        """Take one sandbox to delete, as (id, node), or None."""
        taken = await self._store.run("take_stopping", {"limit": 1, "hold_us": hold_us})
        return (taken[0].decode(), taken[1].decode()) if taken else None

    async def defer(self, sandbox_id: str, delay_us: int) -> None:
        """Put a deletion off."""
        await self._store.run("defer", {"id": sandbox_id, "delay_us": delay_us})

    async def gone(self, sandbox_id: str, tomb_seconds: int) -> bool:
        """STOPPING -> GONE; False where it was not STOPPING."""
        return bool((await self._store.run("gone", {"id": sandbox_id, "tomb_seconds": tomb_seconds}))[0])

    async def on_node(self, node_id: str) -> dict[str, str]:
        """Give the states of what should be on a node, by id."""
        flat = [value.decode() for value in await self._store.run("on_node", {"node": node_id})]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    async def missing(self, sandbox_ids: Sequence[str]) -> list[str]:
        """Give those that have no record."""
        return [value.decode() for value in await self._store.run("missing", {"ids": list(sandbox_ids)})]

    async def is_buried(self, sandbox_id: str) -> bool:
        """Say whether it was here and was deleted, not too long ago."""
        return bool((await self._store.run("buried", {"id": sandbox_id}))[0])
