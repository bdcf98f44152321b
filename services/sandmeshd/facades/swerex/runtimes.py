"""The runtimes that clients use: a sandbox for each name of each key."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final
from weakref import WeakValueDictionary

from sandmesh import SandboxAsync
from sandmesh.errors import NotFound, SandboxLost
from sandmesh.inputs import Options
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.swerex.link import GuestLink, start_guest
from sandmeshd.facades.swerex.places import RuntimePlace

LABEL: Final = "swerex"
"""Marks the sandboxes of this door; its value is the runtime's name."""

LEASE_SECONDS: Final = 7 * 86_400.0
CALL_SECONDS: Final = 60.0


class Runtime:
    """One sandbox that a client uses."""

    def __init__(self, box: SandboxAsync, idle_seconds: float) -> None:
        self.box = box
        self.lost: str | None = None
        """Why its sandbox is there no more."""
        self._idle_seconds = idle_seconds
        self._link: GuestLink | None = None
        self._lock = asyncio.Lock()

    async def ask(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        """Call a method of the program in the sandbox, which is started where it does not run."""
        try:
            async with self._lock:
                if self._link is None or not self._link.open:
                    self._link = await start_guest(self.box, self._idle_seconds)
            return await self._link.ask(method, body)
        except (SandboxLost, NotFound) as error:
            self.lost = error.message
            raise

    async def close(self) -> None:
        """End the program; the sandbox stays."""
        if self._link is not None:
            await self._link.close()
        await self.box.close()


class Runtimes:
    """The runtimes in use."""

    def __init__(self, clients: MeshClients, idle_seconds: float) -> None:
        self._clients = clients
        self._idle_seconds = idle_seconds
        self._runtimes: dict[RuntimePlace, Runtime] = {}
        self._locks: WeakValueDictionary[RuntimePlace, asyncio.Lock] = WeakValueDictionary()

    def found(self, place: RuntimePlace) -> Runtime | None:
        """Return a runtime that is in use."""
        return self._runtimes.get(place)

    async def runtime(self, place: RuntimePlace) -> Runtime:
        """Return a runtime, with a new sandbox where it has none.

        Raises:
            SandmeshError: The sandbox could not be made.
        """
        async with self._locks.setdefault(place, asyncio.Lock()):
            found = self._runtimes.get(place)
            if found is None:
                found = self._runtimes[place] = await self._open(place)
        return found

    async def end(self, place: RuntimePlace) -> None:
        """End a runtime and its sandbox."""
        async with self._locks.setdefault(place, asyncio.Lock()):
            found = self._runtimes.pop(place, None)
            if found is None:
                return
            await found.close()
            async with self._clients.client(place.key) as mesh:
                try:
                    await mesh.sandboxes.kill(found.box.sandbox_id)
                except (NotFound, SandboxLost):
                    return

    async def close(self) -> None:
        """Close all; the sandboxes stay until they are idle for long."""
        runtimes, self._runtimes = self._runtimes, {}
        for runtime in runtimes.values():
            await runtime.close()

    async def _open(self, place: RuntimePlace) -> Runtime:
        options: Options = {
            "labels": {LABEL: place.name},
            "ttl": LEASE_SECONDS,
            "idle_timeout": self._idle_seconds,
        }
        digest = hashlib.sha256(f"{place.template}/{place.name}".encode()).hexdigest()[:24]
        async with self._clients.client(place.key) as mesh:
            session = await mesh.sessions.connect(f"swerex-{digest}", sandbox_type=place.template, **options)
        box = SandboxAsync(
            session.sandboxes[place.template], CALL_SECONDS, self._clients.address, bearer_token=place.key
        )
        return Runtime(await box.start(), self._idle_seconds)
