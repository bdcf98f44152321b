"""What a pod's status means: the state of its sandbox, how it ended, and what its start waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb

NO_IMAGE = (
    "ErrImagePull",
    "ImageInspectError",
    "RegistryUnavailable",
    "CreateContainerConfigError",
    "CreateContainerError",
)
"""Reasons for a waiting container that a retry may end: the third ends the start."""

NEVER = ("InvalidImageName", "ErrImageNeverPull")
"""Reasons that no retry ends."""

_OWN, _BEFORE = "containerStatuses", "initContainerStatuses"

Pod = Mapping[str, Any]
State = tuple[pb.RuntimeState.ValueType, str]
"""A state, and for ENDED the detail of the end."""


@dataclass(frozen=True)
class PodWait:
    """What a pod that has not started waits for."""

    reason: str
    """The API's own word for it, as `Unschedulable` or `ErrImagePull`."""
    message: str
    image: str = ""
    """The image of the container that waits."""


def status_of(pod: Pod) -> Mapping[str, Any]:
    """Return a pod's status, empty if none was reported."""
    status: Mapping[str, Any] | None = pod.get("status")
    return status or {}


def _conditions(status: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    conditions: Sequence[Mapping[str, Any]] | None = status.get("conditions")
    return conditions or ()


def state_of(pod: Pod) -> State:
    """Return the state of a pod's sandbox."""
    status = status_of(pod)
    phase = status.get("phase")
    ended = phase in ("Failed", "Succeeded") or _terminated(status) is not None
    if ended:
        return pb.RUNTIME_STATE_ENDED, _end_detail(pod)
    if pod["metadata"].get("deletionTimestamp"):
        return pb.RUNTIME_STATE_ENDED, gone_detail(pod)
    if phase == "Running":
        return pb.RUNTIME_STATE_RUNNING, ""
    return pb.RUNTIME_STATE_STARTING, ""


def _end_detail(pod: Pod) -> str:
    status = status_of(pod)
    cause = _cause(status)
    terminated = _terminated(status) or _failed_copy(status)
    if terminated is None:
        return cause or f"its pod is {status.get('phase')}"
    code = int(terminated.get("exitCode") or 0)
    how = f"signal {code - 128}" if code > 128 else f"exit code {code}"
    reason = str(terminated.get("reason") or "")
    if reason == "OOMKilled":
        how = f"{how}, out of memory (OOMKilled)"
    elif reason not in ("Error", "Completed", ""):
        how = f"{how}, {reason}: {terminated.get('message') or 'no message'}"
    return f"{cause} ({how})" if cause else how


def gone_detail(pod: Pod) -> str:
    """Return how a sandbox ended whose pod is being deleted, or is gone."""
    return _cause(status_of(pod)) or "its pod was deleted by somebody else"


def _cause(status: Mapping[str, Any]) -> str:
    """Return why the cluster ended a pod: an eviction, a preemption, a node that is lost; empty if it did not."""
    for condition in _conditions(status):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return f"{condition.get('reason')}: {condition.get('message') or 'no message'}"
    reason = status.get("reason")
    return f"{reason}: {status.get('message') or 'no message'}" if reason else ""


def _first(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    statuses: list[Mapping[str, Any]] = status.get(kind) or [{}]
    return statuses[0]


def _container(status: Mapping[str, Any], kind: str = _OWN) -> Mapping[str, Any]:
    state: Mapping[str, Any] = _first(status, kind).get("state") or {}
    return state


def _failed_copy(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how the container ended that copies the agent, None if it did not fail."""
    found: Mapping[str, Any] = _container(status, _BEFORE).get("terminated") or {}
    if not found.get("exitCode"):
        return None
    fix = "build the agent's image with this release, and push it (sandmesh build base --driver docker)"
    return {**found, "reason": "the agent could not be copied", "message": fix}


def _terminated(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = _container(status).get("terminated")
    return found


def waiting_for(pod: Pod) -> PodWait | None:
    """Return what a pod's start waits for, None if nothing that has a reason."""
    status = status_of(pod)
    for kind in (_BEFORE, _OWN):
        waiting: Mapping[str, Any] = _container(status, kind).get("waiting") or {}
        if waiting and waiting.get("reason") != "PodInitializing":
            image = str(_first(status, kind).get("image") or "")
            return PodWait(str(waiting.get("reason") or ""), str(waiting.get("message") or ""), image)
    for condition in _conditions(status):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return PodWait(str(condition.get("reason") or ""), str(condition.get("message") or ""))
    return None
