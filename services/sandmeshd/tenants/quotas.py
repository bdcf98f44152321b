"""Quotas of projects and users in the store, where the script of a claim keeps to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from sandmesh.api.quota.v1 import quota_pb2 as pb
from sandmeshd.auth.principal import current_principal
from sandmeshd.auth.projects import Projects
from sandmeshd.store import Store

Kind = Literal["project", "caller"]

QUOTAS = ("sandboxes", "memory_bytes", "cpu_millis", "creates_per_minute")
"""The names of quotas that claims keep to, in the order in which the store returns their use."""
LIMITS = (*QUOTAS, "snapshot_bytes")
"""The names of all."""


class QuotaRecords:
    """The quotas of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._projects = Projects(store)

    async def set(self, kind: Kind, name: str, limits: Mapping[str, int], removed: Sequence[str]) -> None:
        """Set some limits of a project or a user and remove others."""
        arguments = {"kind": kind, "name": name, "limits": dict(limits), "removed": list(removed)}
        await self._store.run("quota_set", arguments)

    async def snapshot_limits(self, project: str, caller: str) -> dict[Kind, int]:
        """Return how many bytes the snapshots of a project and of a user may have, where that is limited."""
        found: Sequence[bytes] = await self._store.run("snapshot_limits", {"project": project, "caller": caller})
        kinds: Sequence[Kind] = ("project", "caller")
        return {kind: int(limit) for kind, limit in zip(kinds, found, strict=True) if limit}

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
        return [one for one in quotas if project in (one.project, of_users.get(one.user_id))]


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
