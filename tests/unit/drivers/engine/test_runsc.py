"""What the gvisor driver asks of an engine before it is opened."""

from __future__ import annotations

from typing import Any

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, RuntimeUnavailable
from sandmeshd.drivers.engine.gvisor.runtime import check_runtime
from sandmeshd.drivers.engine.reach.links import AgentAccess
from sandmeshd.drivers.engine.requirements import check
from sandmeshd.drivers.engine.runtimes import FLAGS, GVISOR

ALL = ["--network=none", "--host-uds=create", "--host-fifo=open"]


def _engine(*arguments: str) -> dict[str, Any]:
    return {"Runtimes": {"runc": {"path": "runc"}, "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": [*arguments]}}}


@pytest.mark.parametrize("arguments", [ALL, ["-network=none", "-host-uds=all", "-host-fifo=open"]])
def test_an_engine_with_what_is_needed_will_do(arguments: list[str]) -> None:
    check_runtime(_engine(*arguments), ends_with_driver=True)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"Runtimes": {"runc": {"path": "runc"}}}, "no runtime runsc, only runc: install gVisor"),
        ({}, "no runtime runsc"),
        (_engine(*ALL[1:]), "without --network=none"),
        (_engine(*ALL, "--network=host"), "without --network=none"),
        (_engine(ALL[0], "--host-uds=open", ALL[2]), "without --host-uds=create"),
        (_engine(*ALL[:2]), "without --host-fifo=open"),
        ({"Runtimes": {"runsc": {"runtimeType": "io.containerd.runsc.v1"}}}, "without --network=none"),
    ],
)
def test_one_that_lacks_something_is_refused_with_what_to_register(info: dict[str, Any], said: str) -> None:
    with pytest.raises(RuntimeUnavailable, match=said) as caught:
        check_runtime(info, ends_with_driver=True)
    assert '"runtimeArgs": ["--network=none", "--host-uds=create", "--host-fifo=open"]' in caught.value.facts["fix"]


def test_sandboxes_that_outlive_their_driver_need_no_pipe_to_end_by() -> None:
    check_runtime(_engine(*ALL[:2]), ends_with_driver=False)


def test_a_limit_of_memory_is_refused_since_the_whole_sandbox_would_end() -> None:
    able = GVISOR.enforceable({flag: True for flags in FLAGS.values() for flag in flags})
    spec = sandbox_pb2.SandboxSpec(template="base", limits=sandbox_pb2.Limits(memory_bytes=1 << 30))
    request = pb.CreateSandboxRequest(sandbox_id="sb_1", mesh_id="unit", spec=spec)
    with pytest.raises(CapabilityMissing, match="gvisor driver cannot") as caught:
        check(GVISOR, request, able, AgentAccess())
    assert caught.value.facts["needs"] == "memory"
