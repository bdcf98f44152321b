"""The time for which no mesh answers, and the calls that end because of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from sandmesh._calls.call import Call
from sandmesh.errors import MeshUnavailable, SandmeshError

# How long calls wait for a mesh that went away; a mesh itself keeps a detached call's output for half of it.
PATIENCE_SECONDS = 60.0
TRY = "start it again (sandmesh up), or call again later"


@dataclass
class Outage:
    """The time for which no mesh has answered at an address, and what ends after how much of it."""

    address: str
    new_seconds: float
    since: float | None = None
    """By the monotonic clock; None while a mesh answers."""

    def overdue(self, calls: Iterable[Call], error: SandmeshError) -> list[tuple[Call, SandmeshError]]:
        """Return the calls that have waited for long enough, each with its error.

        Of a call under way an event has come: an agent sends the first immediately.
        """
        now = time.monotonic()
        since = self.since = self.since or now
        over: list[tuple[Call, SandmeshError]] = []
        for call in calls:
            if now - since > PATIENCE_SECONDS:
                message = f"the mesh at {self.address} went away and did not come back; calls that ran may still run"
                over.append((call, self._error(message, error, changed=True)))
            elif not call.last and not call.abandoned and now - max(call.begun, since) > self.new_seconds:
                message = f"no mesh has answered at {self.address} for {self.new_seconds:g} s: {TRY}"
                # One that was begun before that may have arrived.
                over.append((call, self._error(message, error, changed=not call.begun)))
        return over

    def _error(self, message: str, error: SandmeshError, *, changed: bool) -> MeshUnavailable:
        return MeshUnavailable(message, {"address": self.address, "detail": str(error)}, changed=changed)
