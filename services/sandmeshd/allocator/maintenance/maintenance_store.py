"""Changes of records that no client requests: sweeps, deletions, comparisons, and rebuilding what was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandboxStartFailed, to_detail
from sandmeshd.allocator.records.record_reader import label_names
from sandmeshd.allocator.records.record_store import PAGE, RecordStore
from sandmeshd.allocator.records.records import IDLE_REASON
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.auth.principal import user_key
from sandmeshd.store import Store

_SESSION_SECONDS = 7 * 86400
_READ = 1_000
"""How many records one script reads at most."""


@dataclass(frozen=True)
class Swept:
    """How many leases and idle timeouts expired, starts were abandoned and sandboxes of silent nodes were lost."""

    expired: int
    idle: int
    abandoned: int
    lost: int
    next_us: int
    """In how many microseconds the next lease or idle timeout ends; negative where there is none."""

    pausing: Sequence[str] = ()
    """What is to be paused, as it was idle: they are among `idle`."""

    @property
    def next_seconds(self) -> float | None:
        """The same in seconds, None where there is none."""
        return self.next_us / 1e6 if self.next_us >= 0 else None

    @property
    def is_full(self) -> bool:
        """Whether there may be more to do than one sweep does."""
        return PAGE in (self.expired, self.idle, self.abandoned, self.lost)


PAUSE_AGAIN_SECONDS = 30.0
"""After which an idle sandbox that could not be paused comes up again."""


@dataclass(frozen=True)
class Stopping:
    """A sandbox to delete, the token of its last lease, and what its workspace is saved under first, if it is."""

    sandbox_id: str
    node_id: str
    token: int
    workspace: str


@dataclass(frozen=True)
class Due:
    """A finding of a sweep in the records, with its time in microseconds of the store's clock."""

    sandbox_id: str
    kind: str
    node_id: str
    since_us: int
    detail: str


class MaintenanceStore:
    """The records of a mesh, with every change that no client requests."""

    def __init__(self, store: Store, records: RecordStore, settings: AllocatorSettings) -> None:
        self._store = store
        self._records = records
        self._settings = settings

    async def sweep(self, healthy: Sequence[str], starting: Sequence[str] | None = None) -> Swept:
        """Record that this allocator and those nodes are alive, and finish what no other process will.

        `starting` is what this allocator is starting: what else is recorded as its own to start was abandoned.
        """
        message = "the allocator that was starting the sandbox ended; nothing is left of it, try again"
        failure = to_detail(SandboxStartFailed(message, {"detail": "its allocator ended"})).SerializeToString()
        arguments = {
            "owner": self._records.owner,
            "healthy": list(healthy),
            "starting": None if starting is None else list(starting),
            "grace_us": _us(self._settings.owner_grace_seconds),
            "node_grace_us": _us(self._settings.node_grace_seconds),
            "idle_reason": IDLE_REASON,
            "pause_us": _us(self._settings.pause_seconds),
            "pause_again_us": _us(PAUSE_AGAIN_SECONDS),
            "most": PAGE,
        }
        *counts, pausing = await self._store.run("sweep", arguments, failure)
        expired, idle, abandoned, lost, next_us = map(int, counts)
        return Swept(expired, idle, abandoned, lost, next_us, [one.decode() for one in pausing])

    async def survey(self) -> list[Due]:
        """Return what a sweep would find in the records, of each kind the first thousand."""
        arguments = {
            "grace_us": _us(self._settings.owner_grace_seconds),
            "silent_us": _us(2 * self._settings.health_seconds + self._settings.sweep_seconds),
            "most": _READ,
        }
        flat = [value.decode() for value in await self._store.run("survey", arguments)]
        rows = [flat[start : start + 5] for start in range(0, len(flat), 5)]
        return [Due(one, kind, node, int(float(since)), detail) for one, kind, node, since, detail in rows]

    async def announce_exit(self) -> None:
        """Record that this allocator ends."""
        await self._store.run("announce_exit", {"owner": self._records.owner})

    async def lost(self, sandbox_id: str, reason: str) -> bool:
        """READY or PAUSED -> LOST; False where it was neither. One that is STARTING is left to its allocator."""
        arguments = {"id": sandbox_id, "reason": reason, "actor": "driver"}
        return bool((await self._store.run("lost", arguments))[0])

    async def take_stopping(self, hold_us: int, save_hold_us: int) -> Stopping | None:
        """Take a sandbox to delete, or None; it is reserved for `hold_us`, longer where it is saved first."""
        arguments = {"limit": 1, "hold_us": hold_us, "save_hold_us": save_hold_us, "owner": self._records.owner}
        taken = [value.decode() for value in await self._store.run("take_stopping", arguments)]
        return Stopping(taken[0], taken[1], int(taken[2]), taken[3]) if taken else None

    async def defer(self, sandbox_id: str, delay_us: int, trouble: str, *, unsaved: bool = False) -> None:
        """Postpone a deletion, and record why; with `unsaved` as an event, too."""
        arguments: dict[str, object] = {"id": sandbox_id, "delay_us": delay_us, "trouble": trouble}
        await self._store.run("defer", {**arguments, "unsaved": True} if unsaved else arguments)

    async def gone(self, sandbox_id: str, only_if_silent: bool = False) -> bool:
        """STOPPING -> GONE; False where it was not STOPPING, or its node was to be silent and was not."""
        arguments: dict[str, object] = {
            "id": sandbox_id,
            "tomb_seconds": self._settings.tomb_seconds,
            "event_seconds": self._settings.event_seconds,
        }
        if only_if_silent:
            arguments["silent_us"] = _us(self._settings.node_grace_seconds)
        return bool((await self._store.run("gone", arguments))[0])

    async def on_node(self, node_id: str) -> dict[str, str]:
        """Return the states of what should be on a node, by id."""
        found: dict[str, str] = {}
        cursor = "0"
        while True:
            arguments = {"node": node_id, "cursor": cursor, "count": _READ}
            cursor, *flat = (value.decode() for value in await self._store.run("on_node", arguments))
            found |= dict(zip(flat[::2], flat[1::2], strict=True))
            if cursor == "0":
                return found

    async def missing(self, node_id: str, sandbox_ids: Sequence[str]) -> list[str]:
        """Return those that have no record on the node."""
        missing: list[str] = []
        for first in range(0, len(sandbox_ids) or 1, _READ):
            arguments = {"node": node_id, "ids": list(sandbox_ids[first : first + _READ])}
            missing += [value.decode() for value in await self._store.run("missing", arguments)]
        return missing

    async def adopt(self, info: driver_pb2.GetInfoResponse, found: driver_pb2.RuntimeSandbox) -> str:
        """Rebuild a record from a runtime's labels; return adopted, known, deleted or taken."""
        labels = found.record_labels
        paused = found.state == driver_pb2.RUNTIME_STATE_PAUSED
        arguments = {
            "record": _rebuilt(info, found, labels),
            "state": "PAUSED" if paused else "READY",
            "labels": label_names(found.spec.labels),
            "owner": self._records.owner,
            "user_key": user_key(labels.get("user", "")),
            "keep_seconds": _SESSION_SECONDS,
            "price": found.nano_price,
        }
        access = driver_pb2.RuntimeSandbox(
            endpoint=found.endpoint, agent_token=found.agent_token, enforced=found.enforced, nano_price=found.nano_price
        )
        body = pb.Sandbox(spec=found.spec).SerializeToString()
        [kind] = await self._store.run("adopt", arguments, access.SerializeToString(), body)
        return str(kind.decode())

    async def open(self) -> bool:
        """Serve requests from now on; return False where the store came back empty once more."""
        done = bool((await self._store.run("open", {}))[0])
        await self._store.refresh_generation()
        return done


_LABELLED = (
    "on_idle",
    "auto_resume",
    "session",
    "slot",
    "user",
    "session_name",
    "caller",
    "spec_key",
    "ports",
    "workspace",
    "project",
)
_NUMBERS = ("token", "ttl_us", "idle_us", "created_us")


def _rebuilt(
    info: driver_pb2.GetInfoResponse, found: driver_pb2.RuntimeSandbox, labels: Mapping[str, str]
) -> dict[str, str]:
    return {
        "id": found.sandbox_id,
        "node": info.node_id,
        "driver": info.name,
        "template": found.spec.template,
        **{name: labels.get(name, "") for name in _LABELLED},
        **{name: labels.get(name) or "0" for name in _NUMBERS},
        "memory_bytes": str(found.spec.limits.memory_bytes),
        "cpu_millis": str(found.spec.limits.cpu_millis),
    }


def _us(seconds: float) -> int:
    return int(seconds * 1e6)
