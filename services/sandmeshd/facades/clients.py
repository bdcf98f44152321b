"""Clients of the mesh: one for each key that is in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from sandmesh.mesh import MeshAsync, PrincipalInfo
from sandmeshd.auth.doors import as_door
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.tenants.shares import ADMINISTRATORS

MOST: Final = 256
"""How many clients stay connected; those that are in use are never closed."""


def owner_of(principal: PrincipalInfo) -> str:
    """Return whom a principal's use counts for: its user, project or sandbox, else the administrators."""
    kinds = {"user": principal.user_id, "project": principal.project, "sandbox": principal.sandbox_id}
    return next((f"{kind} {name}" for kind, name in kinds.items() if name), ADMINISTRATORS)


@dataclass
class _Entry:
    mesh: MeshAsync
    users: int = 0


class MeshClients:
    """Connected clients of a mesh, by key."""

    def __init__(self, mesh: MeshAddress) -> None:
        self.address = mesh.url
        self.own_token = mesh.token
        """What the door itself shows as an administrator."""
        self._proof = mesh.proof
        self.refused = mesh.refused
        """Records what the door refused."""
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    @asynccontextmanager
    async def client(self, key: str | None) -> AsyncGenerator[MeshAsync]:
        """Yield the client of a key; None is the door itself, an administrator."""
        name = key or ""
        entry = self._entries.get(name)
        if entry is None:
            shown = self.token(key) if key else self.own_token or self.token("") or None
            entry = self._entries[name] = _Entry(MeshAsync(self.address, shown))
        self._entries.move_to_end(name)
        entry.users += 1
        try:
            yield await entry.mesh.start()
        finally:
            entry.users -= 1
            await self._close_some()

    def token(self, key: str) -> str:
        """Return what a handle shows that creates sandboxes with the door's labels, in the name of a key."""
        return as_door(key, self._proof)

    async def close(self) -> None:
        """Close all."""
        entries, self._entries = self._entries, OrderedDict()
        for entry in entries.values():
            await entry.mesh.close()

    async def _close_some(self) -> None:
        while len(self._entries) > MOST:
            idle = next((name for name, entry in self._entries.items() if not entry.users), None)
            if idle is None:
                return
            await self._entries.pop(idle).mesh.close()
