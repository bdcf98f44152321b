"""What keeps records true without anybody's asking: sweeps, deletions, comparisons, and rebuilding what was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandboxStartFailed, to_detail
from sandmeshd.allocator.records.ledger import Ledger, label_names
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.auth.principal import user_key
from sandmeshd.store import Store

_SESSION_SECONDS = 7 * 86400


@dataclass(frozen=True)
class Swept:
    """How many leases and idle times ran out, starts were abandoned and sandboxes of silent nodes were lost."""

    expired: int
    idle: int
    abandoned: int
    lost: int


@dataclass(frozen=True)
class Stopping:
    """A sandbox to delete, the token of its last lease, and what its workspace is saved under first, if it is."""

    sandbox_id: str
    node_id: str
    token: int
    workspace: str


@dataclass(frozen=True)
class Due:
    """Something that a sweep would find in the records: since when, in microseconds of the store's clock."""

    sandbox_id: str
    kind: str
    node_id: str
    since_us: int
    detail: str


class Upkeep:
    """The scripts that no caller asks for."""

    def __init__(self, store: Store, ledger: Ledger, settings: AllocatorSettings) -> None:
        self._store = store
        self._ledger = ledger
        self._settings = settings

    async def sweep(self, healthy: Sequence[str], starting: Sequence[str] | None = None) -> Swept:
        """Say that this allocator and those nodes live, and finish what nobody else will.

        `starting` is what this allocator is starting: what else is recorded as its to start, nobody does.
        """
        message = "the allocator that started the sandbox ended; nothing is left of it, try again"
        failure = to_detail(SandboxStartFailed(message, {"detail": "its allocator ended"})).SerializeToString()
        words = {
            "owner": self._ledger.owner,
            "healthy": list(healthy),
            "starting": None if starting is None else list(starting),
            "grace_us": _us(self._settings.owner_grace_seconds),
            "node_grace_us": _us(self._settings.node_grace_seconds),
        }
        return Swept(*(int(count) for count in await self._store.run("sweep", words, failure)))

    async def survey(self) -> list[Due]:
        """Say what a sweep would find in the records."""
        words = {
            "grace_us": _us(self._settings.owner_grace_seconds),
            "silent_us": _us(2 * self._settings.health_seconds + self._settings.sweep_seconds),
        }
        flat = [word.decode() for word in await self._store.run("survey", words)]
        rows = [flat[start : start + 5] for start in range(0, len(flat), 5)]
        return [Due(one, kind, node, int(float(since)), detail) for one, kind, node, since, detail in rows]

    async def farewell(self) -> None:
        """Say that this allocator ends."""
        await self._store.run("farewell", {"owner": self._ledger.owner})

    async def lost(self, sandbox_id: str, reason: str) -> bool:
        """READY or PAUSED -> LOST; False where it was neither. One that is STARTING is its allocator's to find out."""
        words = {"id": sandbox_id, "reason": reason, "actor": "driver"}
        return bool((await self._store.run("lost", words))[0])

    async def take_stopping(self, hold_us: int, save_hold_us: int) -> Stopping | None:
        """Take one sandbox to delete, or None; nobody else gets it for a while, longer where it is saved first."""
        words = {"limit": 1, "hold_us": hold_us, "save_hold_us": save_hold_us}
        taken = [word.decode() for word in await self._store.run("take_stopping", words)]
        return Stopping(taken[0], taken[1], int(taken[2]), taken[3]) if taken else None

    async def defer(self, sandbox_id: str, delay_us: int, trouble: str, *, unsaved: bool = False) -> None:
        """Put a deletion off, and note why; with `unsaved` as an event, too."""
        words: dict[str, object] = {"id": sandbox_id, "delay_us": delay_us, "trouble": trouble}
        await self._store.run("defer", {**words, "unsaved": True} if unsaved else words)

    async def gone(self, sandbox_id: str, only_if_silent: bool = False) -> bool:
        """STOPPING -> GONE; False where it was not STOPPING, or its node was to be silent and was not."""
        words: dict[str, object] = {
            "id": sandbox_id,
            "tomb_seconds": self._settings.tomb_seconds,
            "event_seconds": self._settings.event_seconds,
        }
        if only_if_silent:
            words["silent_us"] = _us(self._settings.node_grace_seconds)
        return bool((await self._store.run("gone", words))[0])

    async def on_node(self, node_id: str) -> dict[str, str]:
        """Give the states of what should be on a node, by id."""
        flat = [value.decode() for value in await self._store.run("on_node", {"node": node_id})]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    async def missing(self, node_id: str, sandbox_ids: Sequence[str]) -> list[str]:
        """Give those that have no record on the node."""
        words = {"node": node_id, "ids": list(sandbox_ids)}
        return [value.decode() for value in await self._store.run("missing", words)]

    async def adopt(self, info: driver_pb2.GetInfoResponse, found: driver_pb2.RuntimeSandbox) -> str:
        """Rebuild a record from a runtime's labels; give adopted, known, buried or taken."""
        labels = found.record_labels
        paused = found.state == driver_pb2.RUNTIME_STATE_PAUSED
        words = {
            "record": _rebuilt(info, found, labels),
            "state": "PAUSED" if paused else "READY",
            "labels": label_names(found.spec.labels),
            "owner": self._ledger.owner,
            "user_key": user_key(labels.get("user", "")),
            "keep_seconds": _SESSION_SECONDS,
        }
        access = driver_pb2.RuntimeSandbox(
            endpoint=found.endpoint, agent_token=found.agent_token, enforced=found.enforced
        )
        body = pb.Sandbox(spec=found.spec).SerializeToString()
        [kind] = await self._store.run("adopt", words, access.SerializeToString(), body)
        return str(kind.decode())

    async def open(self) -> bool:
        """Serve requests from now on; False where the store came back empty once more."""
        done = bool((await self._store.run("open", {}))[0])
        await self._store.learn()
        return done


_LABELLED = ("session", "slot", "user", "session_name", "caller", "spec_key", "ports", "workspace")
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
    }


def _us(seconds: float) -> int:
    return int(seconds * 1e6)
