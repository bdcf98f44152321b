"""The quotas of a mesh."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from sandmesh._client.messages import read_name, read_size
from sandmesh.api.quota.v1 import quota_pb2
from sandmesh.errors import InvalidArgument
from sandmesh.mesh.messages import read_quota
from sandmesh.mesh.records import QuotaInfo
from sandmesh.mesh.rpc import Rpc
from sandmesh.results import Listing

_FIELDS = {
    "sandboxes": "sandboxes",
    "memory": "memory_bytes",
    "cpus": "cpu_millis",
    "creates_per_minute": "creates_per_minute",
    "snapshot_bytes": "snapshot_bytes",
    "exposed_ports": "exposed_ports",
    "calls_in_flight": "calls_in_flight",
    "paused_sandboxes": "paused_sandboxes",
}


class QuotasAsync:
    """The quotas of a mesh: `mesh.quotas`. Every method needs the scope admin, else it raises PermissionDenied."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def list(self) -> builtins.list[QuotaInfo]:
        """Return the quotas of projects, then of users, with their use: of all that have a limit or a sandbox."""
        request = quota_pb2.ListQuotasRequest()
        response = await self._rpc.send(lambda stubs: stubs.quotas.ListQuotas, request)
        return Listing(read_quota(quota) for quota in response.quotas)

    async def set(self, limits: Mapping[str, float | str | None], *, project: str = "", user_id: str = "") -> QuotaInfo:
        """Change limits of a project or a user; None removes one, and the others stay.

        They are sandboxes, memory, cpus, creates_per_minute, snapshot_bytes, exposed_ports, calls_in_flight and
        paused_sandboxes. A limit below what is in use ends nothing; what is begun beyond it raises QuotaExceeded.

        Raises:
            InvalidArgument: A limit is unknown or does not fit, or not exactly one of `project` and `user_id` is set.
        """
        amounts = {_field(name): _amount(name, value) for name, value in limits.items() if value is not None}
        request = quota_pb2.SetQuotaRequest(
            project=project,
            user_id=user_id,
            limits=quota_pb2.QuotaLimits(**amounts),
            removed=[_field(name) for name, value in limits.items() if value is None],
        )
        response = await self._rpc.send(lambda stubs: stubs.quotas.SetQuota, request)
        return read_quota(response.quota)

    async def assign(self, user_id: str, project: str) -> None:
        """Assign a user to a project; its sandboxes go on counting where they were claimed.

        Raises:
            InvalidArgument: The project's name does not fit.
        """
        request = quota_pb2.AssignProjectRequest(
            user_id=read_name("user_id", user_id), project=read_name("project", project)
        )
        await self._rpc.send(lambda stubs: stubs.quotas.AssignProject, request)


def _field(name: str) -> str:
    if name not in _FIELDS:
        raise InvalidArgument(f"no such quota: {name!r} (known: {', '.join(_FIELDS)})", {"argument": "limits"})
    return _FIELDS[name]


def _amount(name: str, value: float | str) -> int:
    """Return a limit as the mesh counts it: whole sandboxes and creates, bytes, thousandths of a core."""
    if value in (0, "0"):
        return 0
    if name in ("memory", "snapshot_bytes") and not isinstance(value, float):
        return read_size(f"limits.{name}", value)
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number <= 2**22 or (name != "cpus" and not number.is_integer()):
        kind = "a number" if name == "cpus" else "a whole number"
        raise InvalidArgument(f"limits.{name} is {kind} from 0 to {2**22}, not {value!r}", {"argument": "limits"})
    return round(number * 1000) if name == "cpus" else int(number)
