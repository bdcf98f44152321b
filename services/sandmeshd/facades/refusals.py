"""The hosts that a sandbox was refused, as a grant names them, and their approval by a person."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from sandmesh import MeshAsync
from sandmesh.mesh import SandboxEvent

_REASON: Final = re.compile(r"(?P<host>\S+?):(?P<port>\d+)(?:, \d+ times)?: ")
_WEB: Final = ("80", "443")
"""The ports that a host without one is allowed at."""
_EVENTS: Final = 100
_MOST: Final = 3
"""The most hosts that one call asks about: code in the sandbox chooses the names."""


def refused_hosts(events: Iterable[SandboxEvent]) -> list[str]:
    """Return the hosts of refusals, each once, the newest first; events come with the oldest first."""
    found: dict[str, None] = {}
    for event in reversed(list(events)):
        refusal = _REASON.match(event.reason) if event.kind == "egress_refused" else None
        if refusal is not None:
            host, port = refusal.group("host", "port")
            found[host if port in _WEB or ":" in host else f"{host}:{port}"] = None
    return list(found)


class HostApprovals:
    """Asks about each host that a sandbox was refused once, and allows those that are approved."""

    def __init__(self) -> None:
        self._prompts: set[tuple[str, str]] = set()

    async def settle(self, mesh: MeshAsync, sandbox_id: str, ask: Callable[[str], Awaitable[bool]]) -> list[str]:
        """Ask about the hosts that were refused since; return those that are allowed from now on.

        Raises:
            SandmeshError: The mesh does not answer, or its caller may not change the sandbox.
        """
        network = mesh.sandboxes.network(sandbox_id)
        refused = refused_hosts(await mesh.events.list(sandbox_id, limit=_EVENTS))
        fresh = [host for host in refused if (sandbox_id, host) not in self._prompts][:_MOST]
        if not fresh:
            return []
        granted = set((await network.show()).grant.hosts)
        allowed: list[str] = []
        for host in fresh:
            self._prompts.add((sandbox_id, host))
            if host not in granted and await ask(host):
                await network.allow(host)
                allowed.append(host)
        return allowed
