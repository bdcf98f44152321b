"""What pods' statuses, as kubelets and controllers write them, mean for their sandboxes."""

from __future__ import annotations

from typing import Any

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.kubernetes.pods.reasons import PodWait, gone_detail, state_of, waiting_for

ENDED, RUNNING, STARTING = pb.RUNTIME_STATE_ENDED, pb.RUNTIME_STATE_RUNNING, pb.RUNTIME_STATE_STARTING


def _pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "one"}, "status": status}


def _terminated(**state: Any) -> list[dict[str, Any]]:
    return [{"state": {"terminated": state}}]


@pytest.mark.parametrize("reason", ["Evicted", "NodeLost", "NodeShutdown", "Preempting", "OutOfcpu", "NodeAffinity"])
def test_what_ended_a_pod_is_told_by_the_clusters_own_word(reason: str) -> None:
    assert state_of(_pod(phase="Failed", reason=reason, message="why")) == (ENDED, f"{reason}: why")


@pytest.mark.parametrize("reason", ["PreemptionByScheduler", "DeletionByTaintManager", "TerminationByKubelet"])
def test_a_disruption_is_told_before_the_exit_code_that_it_caused(reason: str) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why"}
    ended = _pod(phase="Failed", conditions=[target], containerStatuses=_terminated(exitCode=143, reason="Error"))
    assert state_of(ended) == (ENDED, f"{reason}: why (signal 15)")
    assert gone_detail(ended) == f"{reason}: why"


def test_a_container_that_exceeded_its_memory_says_so() -> None:
    ended = _pod(phase="Failed", containerStatuses=_terminated(exitCode=137, reason="OOMKilled"))
    assert state_of(ended) == (ENDED, "signal 9, out of memory (OOMKilled)")


def test_a_pod_that_is_deleted_without_a_reason_was_deleted_by_somebody_else() -> None:
    deleted = _pod(phase="Running")
    deleted["metadata"]["deletionTimestamp"] = "now"
    assert state_of(deleted) == (ENDED, "its pod was deleted by somebody else")


def test_a_pod_that_waits_says_for_what() -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    assert waiting_for(_pod(phase="Pending", conditions=[unschedulable])) == PodWait("Unschedulable", "0/1 nodes")
    pulling = [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}}]
    assert waiting_for(_pod(phase="Pending", containerStatuses=pulling)) == PodWait("ImagePullBackOff", "back-off")
    assert waiting_for(_pod(phase="Pending")) is None
    before = [{"image": "base", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}}]
    own = [{"image": "own", "state": {"waiting": {"reason": "PodInitializing"}}}]
    copying = _pod(phase="Pending", initContainerStatuses=before, containerStatuses=own)
    assert waiting_for(copying) == PodWait("ErrImagePull", "no such host", "base")
    assert waiting_for(_pod(phase="Pending", containerStatuses=own)) is None


def test_a_pod_whose_agent_was_not_copied_says_what_to_do() -> None:
    own = [{"state": {"waiting": {"reason": "PodInitializing"}}}]
    failed = _pod(phase="Failed", initContainerStatuses=_terminated(exitCode=2, reason="Error"), containerStatuses=own)
    state, detail = state_of(failed)
    assert state == ENDED
    assert detail.startswith("exit code 2, the agent could not be copied: build the agent's image")
    assert state_of(_pod(phase="Pending")) == (STARTING, "")
    assert state_of(_pod(phase="Running")) == (RUNNING, "")
