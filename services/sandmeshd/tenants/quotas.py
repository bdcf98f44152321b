"""Quotas of projects and users in the store, where the script of a claim keeps to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sandmesh.api.quota.v1 import quota_pb2 as pb
from sandmesh.errors import QuotaExceeded
from sandmeshd.auth.principal import current_principal
from sandmeshd.auth.projects import Projects
from sandmeshd.store import Store

Kind = Literal["project", "caller"]

CLAIMED = ("sandboxes", "memory_bytes", "cpu_millis", "creates_per_minute")
"""The names of quotas that claims keep to."""
QUOTAS = (*CLAIMED, "snapshot_bytes", "exposed_ports", "calls_in_flight", "paused_sandboxes")
"""The names of all, in the order in which the store returns their use."""

_REMEDIES = {
    "creates_per_minute": "wait a minute",
    "snapshot_bytes": "delete a snapshot",
    "exposed_ports": "revoke one, or release its sandbox",
    "calls_in_flight": "wait for one to end",
    "paused_sandboxes": "resume or release a paused one",
}


@dataclass(frozen=True)
class ReachedQuota:
    """The quota that a request does not fit into: whose it is, a project's or a caller's, what is in use, the limit."""

    kind: str
    name: str
    quota: str
    used: int
    limit: int

    def error(self, requested: int) -> QuotaExceeded:
        """Return the error of the request.

        `facts`: `quota`, `of` (project or user), `name`, `used`, `requested` and `limit`.
        """
        owner = "project" if self.kind == "project" else "user"
        facts = {
            "quota": self.quota,
            "of": owner,
            "name": self.name,
            "used": str(self.used),
            "requested": str(requested),
            "limit": str(self.limit),
        }
        remedy = _REMEDIES.get(self.quota, "release a sandbox")
        message = (
            f"the quota {self.quota} of the {owner} {self.name} is reached: {self.used} of {self.limit} are in "
            f"use and {requested} requested; {remedy}, or have it raised (sandmesh quota set)"
        )
        return QuotaExceeded(message, facts)


class QuotaRecords:
    """The quotas of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._projects = Projects(store)

    async def set(self, kind: Kind, name: str, limits: Mapping[str, int], removed: Sequence[str]) -> None:
        """Set some limits of a project or a user and remove others."""
        arguments = {"kind": kind, "name": name, "limits": dict(limits), "removed": list(removed)}
        await self._store.run("quota_set", arguments)

    async def assign(self, user_id: str, project: str) -> None:
        """Assign a user to a project."""
        await self._store.run("project_set", {"user": user_id, "project": project})

    async def all(self) -> list[pb.Quota]:
        """Return all quotas with their use: of projects by name, then of users by id.

        Raises:
            Recovering: The use is unknown while records are being rebuilt.
        """
        flat = await self._store.run("quota_list", {})
        quotas = await self._shown([_quota(*flat[index : index + 5]) for index in range(0, len(flat), 5)])
        return sorted(quotas, key=lambda quota: (bool(quota.user_id), quota.project, quota.user_id))

    async def _shown(self, quotas: Sequence[pb.Quota]) -> Sequence[pb.Quota]:
        project = current_principal().project
        if not project:
            return quotas
        of_users, _ = await self._projects.find([quota.user_id for quota in quotas if quota.user_id])
        return [quota for quota in quotas if project in (quota.project, of_users.get(quota.user_id))]


def _quota(
    kind: bytes, name: bytes, limits: Sequence[bytes], used: Sequence[bytes], users: Sequence[bytes]
) -> pb.Quota:
    quota = pb.Quota(
        limits=pb.QuotaLimits(**{limits[i].decode(): int(limits[i + 1]) for i in range(0, len(limits), 2)}),
        use=pb.QuotaUse(**{quota: int(value) for quota, value in zip(QUOTAS, used, strict=True)}),
        user_ids=sorted(user.decode() for user in users),
    )
    setattr(quota, "project" if kind == b"project" else "user_id", name.decode())
    return quota
