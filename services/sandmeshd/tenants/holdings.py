"""What no claim takes and quotas count all the same: snapshots, exposed ports and calls in flight, in the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from sandmeshd.store import Store
from sandmeshd.tenants.quotas import Kind, ReachedQuota


@dataclass(frozen=True)
class CountedSnapshot:
    """A snapshot as it counts: for its project and its caller, either of which may be empty."""

    id: str
    node: str
    project: str
    caller: str
    bytes: int


@dataclass(frozen=True)
class CallShare:
    """What a gateway may carry of an owner's calls: the quota, its share, and how many other gateways carry."""

    kind: Kind
    name: str
    limit: int
    granted: int
    elsewhere: int


class Holdings:
    """Snapshots, ports and calls of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def check_snapshots(self, project: str, caller: str) -> bool:
        """Check that owners may have one more snapshot; return whether any of them has a limit.

        Raises:
            QuotaExceeded: One has as many bytes as it may.
        """
        words = await self._store.run("snapshot_room", {"project": project, "caller": caller})
        if len(words) > 1 and (reached := _reached(words, "snapshot_bytes")):
            raise reached.error(1)
        return bool(words)

    async def keep_snapshot(self, snapshot: CountedSnapshot) -> None:
        """Count a snapshot that was taken.

        Raises:
            QuotaExceeded: It does not fit.
        """
        words = await self._store.run("snapshot_keep", asdict(snapshot))
        if reached := _reached(words, "snapshot_bytes"):
            raise reached.error(snapshot.bytes)

    async def forget_snapshot(self, snapshot_id: str) -> None:
        """Count a snapshot no more."""
        await self._store.run("snapshot_forget", {"id": snapshot_id})

    async def survey_snapshots(
        self, found: Sequence[CountedSnapshot], answered: Collection[str], nodes: Collection[str]
    ) -> None:
        """Correct what counts by what the nodes that `answered` list; `nodes` are all there are, or none if unknown."""
        listed = [asdict(one) for one in found]
        arguments = {"found": listed, "answered": list(answered), "nodes": list(nodes)}
        await self._store.run("snapshot_survey", arguments)

    async def hold_port(self, sandbox_id: str, exposure_id: str, expires_us: int) -> None:
        """Count a URL of a sandbox's until it is released or ends.

        Raises:
            QuotaExceeded: It does not fit.
        """
        arguments = {"sandbox": sandbox_id, "exposure": exposure_id, "expires_us": expires_us}
        if reached := _reached(await self._store.run("port_hold", arguments), "exposed_ports"):
            raise reached.error(1)

    async def release_port(self, sandbox_id: str, exposure_id: str) -> None:
        """Count a URL no more."""
        await self._store.run("port_release", {"sandbox": sandbox_id, "exposure": exposure_id})

    async def share_calls(
        self, gateway_id: str, counts: Mapping[tuple[Kind, str], tuple[int, int]], *, leaving: bool = False
    ) -> Sequence[CallShare]:
        """Report how many calls a gateway carries and wants to; return its share of every quota of calls."""
        by_owner = {f"{kind}:{name}": count for (kind, name), count in counts.items()}
        words = await self._store.run("calls_share", {"gateway": gateway_id, "counts": by_owner, "leaving": leaving})
        return [_share(words[index : index + 5]) for index in range(0, len(words), 5)]


def _share(words: Sequence[bytes]) -> CallShare:
    kind: Kind = "project" if words[0] == b"project" else "caller"
    limit, granted, elsewhere = map(int, words[2:])
    return CallShare(kind, words[1].decode(), limit, granted, elsewhere)


def _reached(words: Sequence[bytes], quota: str) -> ReachedQuota | None:
    if not words:
        return None
    kind, name, used, limit = words
    return ReachedQuota(kind.decode(), name.decode(), quota, int(used), int(limit))
