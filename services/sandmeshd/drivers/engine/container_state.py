"""The state of a sandbox, from its record and the state that the engine reports of its container."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.node.records import Folder, Record, read_record

State = tuple[pb.RuntimeState.ValueType, str]
"""A state, and for ENDED the detail of the end."""

KILLED = 128 + 9

_ALIVE = {"running": pb.RUNTIME_STATE_RUNNING, "paused": pb.RUNTIME_STATE_PAUSED}


def state_of(state: Mapping[str, Any]) -> State:
    """Return the state of a container that the engine describes."""
    status = str(state.get("Status"))
    if status in _ALIVE:
        return _ALIVE[status], ""
    if status == "created":
        return pb.RUNTIME_STATE_STARTING, ""
    return pb.RUNTIME_STATE_ENDED, _end_detail(state)


def killed_within(state: Mapping[str, Any], seconds: float) -> bool:
    """Return whether a container was killed that lately, as far as known not for its memory."""
    if state.get("Status") != "exited" or state.get("ExitCode") != KILLED or state.get("OOMKilled"):
        return False
    age = datetime.now(UTC) - datetime.fromisoformat(str(state["FinishedAt"]))
    return abs(age.total_seconds()) < seconds


def _end_detail(state: Mapping[str, Any]) -> str:
    code = int(state.get("ExitCode") or 0)
    how = f"signal {code - 128}" if code > 128 else f"exit code {code}"
    return f"{how}, out of memory" if state.get("OOMKilled") else how


def observe(folder: Folder, mesh_id: str, state: State | None) -> pb.RuntimeSandbox | None:
    """Return a sandbox as it is now, None if nothing of it is left; `state` is its container's, if there is one."""
    record = read_record(folder)
    if record is None:
        if state is None and not folder.root.is_dir():
            return None
        # Its creator was killed before it wrote the record, or the folder is lost: nobody can use it.
        record = Record(pb.RuntimeSandbox(sandbox_id=folder.sandbox_id, mesh_id=mesh_id), 0)
        state = pb.RUNTIME_STATE_ENDED, "nothing is known of it"
    sandbox = record.sandbox
    if state is None:
        sandbox.state, sandbox.end_detail = pb.RUNTIME_STATE_ENDED, "its container is gone"
    elif sandbox.state != pb.RUNTIME_STATE_STARTING or state[0] == pb.RUNTIME_STATE_ENDED:
        sandbox.state, sandbox.end_detail = state
    return sandbox
