"""The hosts that a sandbox was refused, as a grant names them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sandmesh.mesh import SandboxEvent

_REASON: Final = re.compile(r"(?P<host>\S+?):(?P<port>\d+)(?:, \d+ times)?: ")
_WEB: Final = ("80", "443")
"""The ports that a host without one is allowed at."""


def refused_hosts(events: Iterable[SandboxEvent]) -> list[str]:
    """Return the hosts of refusals, each once, the newest first; events come with the oldest first."""
    found: dict[str, None] = {}
    for event in reversed(list(events)):
        refusal = _REASON.match(event.reason) if event.kind == "egress_refused" else None
        if refusal is not None:
            host, port = refusal.group("host", "port")
            found[host if port in _WEB or ":" in host else f"{host}:{port}"] = None
    return list(found)
