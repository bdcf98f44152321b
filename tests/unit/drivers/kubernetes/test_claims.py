"""What the conditions of agent-sandbox's claims mean for their sandboxes."""

from __future__ import annotations

from typing import Any

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.kubernetes.agent_sandbox.claims import FINAL, MISTAKES, as_pod
from sandmeshd.drivers.kubernetes.pods.reasons import PodWait, state_of, waiting_for


def _claim(ready: str, reason: str, **status: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": "why"}
    return {"metadata": {"name": "one"}, "status": {"conditions": [condition], **status}}


@pytest.mark.parametrize("reason", sorted(FINAL | MISTAKES))
def test_reasons_that_no_waiting_ends_are_the_end(reason: str) -> None:
    assert state_of(as_pod(_claim("False", reason))) == (pb.RUNTIME_STATE_ENDED, f"{reason}: why")


@pytest.mark.parametrize("reason", ["AdoptionConflict", "SandboxCreatePending", "SandboxMissing", "ReconcilerError"])
def test_other_reasons_are_waited_for(reason: str) -> None:
    waits = as_pod(_claim("False", reason))
    assert state_of(waits)[0] == pb.RUNTIME_STATE_STARTING
    assert waiting_for(waits) == PodWait(reason, "why")


def test_a_claim_that_is_ready_runs_at_its_pods_address_once_that_is_known() -> None:
    assert state_of(as_pod(_claim("True", "DependenciesReady")))[0] == pb.RUNTIME_STATE_STARTING
    ready = as_pod(_claim("True", "DependenciesReady", sandbox={"name": "pod", "podIPs": ["10.0.0.1"]}))
    assert state_of(ready) == (pb.RUNTIME_STATE_RUNNING, "")
    assert (ready["status"]["podIP"], ready["status"]["podName"]) == ("10.0.0.1", "pod")
