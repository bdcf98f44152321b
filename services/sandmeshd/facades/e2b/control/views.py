"""Records of sandboxes and snapshots as E2B's clients read them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from sandmesh.mesh import SandboxInfo
from sandmeshd.facades.e2b.identities import TokenMaker, public_id
from sandmeshd.facades.e2b.marks import Marks

ENVD_VERSION: Final = "0.6.13"
"""What the door answers as: clients use no feature that came later."""

_TOKENS: Final = frozenset({"envdAccessToken", "trafficAccessToken"})
_MIB: Final = 1 << 20
_DEFAULT_MEMORY: Final = 1024


class Views:
    """Writes records; `host` is where clients find a sandbox's ports, None where they are to know it themselves."""

    def __init__(self, tokens: TokenMaker, host: Callable[[], str | None]) -> None:
        self._tokens = tokens
        self._host = host

    def created(self, sandbox_id: str, marks: Marks) -> dict[str, Any]:
        """Return what a client needs to use a sandbox."""
        view: dict[str, Any] = {
            "templateID": marks.template,
            "sandboxID": public_id(sandbox_id),
            "clientID": "sandmesh",
            "envdVersion": ENVD_VERSION,
            "alias": marks.template,
        }
        host = self._host()
        if host is not None:
            view["domain"] = host
        if marks.secure:
            view["envdAccessToken"] = self._tokens.envd_token(sandbox_id)
        if not marks.public_traffic:
            view["trafficAccessToken"] = self._tokens.traffic_token(sandbox_id)
        return view

    def listed(self, info: SandboxInfo, marks: Marks) -> dict[str, Any]:
        """Return a sandbox as lists have it."""
        memory, disk = _mebibytes(info.limits.memory, _DEFAULT_MEMORY), _mebibytes(info.limits.disk, 0)
        return {
            "templateID": marks.template,
            "alias": marks.template,
            "sandboxID": public_id(info.sandbox_id),
            "clientID": "sandmesh",
            "startedAt": write_time(info.created),
            "endAt": write_time(marks.ends(info.lease.expires) if info.lease is not None else info.created),
            "cpuCount": max(1, round(info.limits.cpus or 1)),
            "memoryMB": memory,
            "diskSizeMB": disk,
            "metadata": marks.metadata,
            "state": state_of(info),
            "envdVersion": ENVD_VERSION,
            "volumeMounts": [{"name": name, "path": path} for path, name in marks.volumes.items()],
        }

    def detailed(self, info: SandboxInfo, marks: Marks, *, may_use: bool) -> dict[str, Any]:
        """Return all that is known of a sandbox, with its tokens for those who may use it."""
        own = self.created(info.sandbox_id, marks)
        return {
            **self.listed(info, marks),
            **({name: own[name] for name in own if may_use or name not in _TOKENS}),
            "allowInternetAccess": marks.internet,
            "network": {"allowPublicTraffic": marks.public_traffic},
            "lifecycle": {"autoResume": marks.auto_resume, "onTimeout": "pause" if marks.auto_pause else "kill"},
        }


def state_of(info: SandboxInfo) -> str:
    """Return a sandbox's state as clients know it."""
    return "paused" if info.state == "PAUSED" else "running"


def write_time(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _mebibytes(size: int | str | None, default: int) -> int:
    return size // _MIB if isinstance(size, int) and size else default
