"""Sandboxes as they are now: their records, and their pods as the watch knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.agentlink.addresses import tls_endpoint
from sandmeshd.drivers.kubernetes.names import object_name
from sandmeshd.drivers.kubernetes.pod import AGENT_PORT
from sandmeshd.drivers.kubernetes.reach import Reach
from sandmeshd.drivers.kubernetes.reasons import state_of
from sandmeshd.drivers.kubernetes.records import Records
from sandmeshd.drivers.kubernetes.watch import PodWatcher

ENDED = pb.RUNTIME_STATE_ENDED


class View:
    """The sandboxes of one mesh."""

    def __init__(self, mesh_id: str, records: Records, watcher: PodWatcher, reach: Reach) -> None:
        self._mesh_id = mesh_id
        self._records = records
        self._watcher = watcher
        self._reach = reach

    def find(self, sandbox_id: str) -> pb.RuntimeSandbox | None:
        """Return a sandbox, None if nothing of it is left."""
        name, record = object_name(self._mesh_id, sandbox_id), self._records.find(sandbox_id)
        pod = self._watcher.find(name)
        if record is None:
            if pod is None:
                return None
            detail = "nothing is known of it"
            return pb.RuntimeSandbox(sandbox_id=sandbox_id, mesh_id=self._mesh_id, state=ENDED, end_detail=detail)
        sandbox = pb.RuntimeSandbox()
        sandbox.CopyFrom(record.sandbox)
        sandbox.endpoint = self._reach.endpoint(name, sandbox.endpoint)
        if self._watcher.is_starting(name) or sandbox.state == ENDED:
            return sandbox
        state, detail = state_of(pod) if pod else (ENDED, self._watcher.why_gone(name))
        if pod and state != ENDED and _is_another(pod, record.sandbox):
            state, detail = ENDED, "its pod was replaced by another"
        # What runs goes on while its claim is not ready for a moment.
        if state == ENDED:
            sandbox.state, sandbox.end_detail = state, detail
        return sandbox

    def all(self) -> list[pb.RuntimeSandbox]:
        """Return every sandbox that has left anything, by id."""
        ids = sorted(self._records.sandbox_ids() | self._watcher.sandbox_ids())
        return [sandbox for sandbox_id in ids if (sandbox := self.find(sandbox_id)) is not None]


def _is_another(pod: Mapping[str, Any], sandbox: pb.RuntimeSandbox) -> bool:
    """Return whether a pod is not the one that became a sandbox: agent-sandbox makes one anew that somebody deletes."""
    address = str(pod["status"].get("podIP") or "")
    return bool(address and sandbox.endpoint) and not sandbox.endpoint.startswith(tls_endpoint(address, AGENT_PORT, ""))
