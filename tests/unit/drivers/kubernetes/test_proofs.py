"""What a cluster is said to do against what canaries find: the word, the refusal and the pods that follow."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.kubernetes.cluster.canary import CONNECT, MESSAGE_FILE, PORT, Canaries, CanaryResult, Facts
from sandmeshd.drivers.kubernetes.cluster.requests import ApiRefusal
from sandmeshd.drivers.kubernetes.pods.pod import pod
from sandmeshd.drivers.kubernetes.proofs import Proofs, check_kernel, prove
from sandmeshd.drivers.kubernetes.requirements import capabilities, enforceable, enforced
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.ports import free_port

GVISOR = "Linux 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"
NODE = "Linux 6.18.5 #2 SMP PREEMPT_DYNAMIC Tue Nov 4 10:00:00 UTC 2026"
GUEST = "Linux 6.12.47 #1 SMP Mon Sep 1 10:00:00 UTC 2026"


class Nodes:
    """Answers for a machine, or refuses to."""

    def __init__(self, release: str) -> None:
        self._release = release

    async def get(self, path: str) -> dict[str, Any]:
        if not self._release:
            raise ApiRefusal(403, "Forbidden", path)
        return {"status": {"nodeInfo": {"kernelVersion": self._release}}}


@dataclass
class Found:
    """Canaries that find what a test says."""

    own_facts: Facts = field(default_factory=Facts)
    policy: CanaryResult = CanaryResult.UNKNOWN
    release: str = "6.18.5"
    pods: list[str] = field(default_factory=list[str])

    @property
    def cluster(self) -> Nodes:
        return Nodes(self.release)

    async def facts(self) -> Facts:
        self.pods.append("facts")
        return self.own_facts

    async def network_policy(self) -> CanaryResult:
        self.pods.append("policy")
        return self.policy


def settings(**own: Any) -> KubernetesSettings:
    folder = Path("/nonexistent")
    found = KubernetesSettings(paths=MeshPaths("one", folder, folder), kubeconfig=folder / "kubeconfig")
    return found.model_copy(update=own)


async def proofs(found: Found, handler: str = "", **own: Any) -> Proofs:
    return await prove(settings(**own), cast("Canaries", found), handler)


async def test_what_nobody_claims_is_neither_tried_nor_reported() -> None:
    found = Found()
    assert await proofs(found) == Proofs()
    assert found.pods == []


async def test_what_a_pod_shows_is_reported_as_tried_and_what_none_can_show_as_declared() -> None:
    declared = ("single-process-oom", "user-namespaces")
    shown = Facts(single_process_oom=CanaryResult.HOLDS, user_namespaces=CanaryResult.HOLDS, kernel=NODE)
    able = enforceable((1, 36), "disk", await proofs(Found(shown), declared=declared))
    assert able["memory"].endswith("(tried by a pod)")
    assert able["pids"].endswith("(tried by a pod)")
    able = enforceable((1, 36), "disk", await proofs(Found(), declared=declared))
    assert able["memory"].endswith("(declared by the operator)")
    assert able["pids"].endswith("(declared by the operator)")
    assert "pids" not in enforceable((1, 36), "disk")


@pytest.mark.parametrize("claim", ["network-policy", "single-process-oom", "user-namespaces"])
async def test_a_claim_that_a_pod_contradicts_is_refused_with_what_to_take_out(claim: str) -> None:
    no = CanaryResult.CONTRADICTED
    found = Found(Facts(single_process_oom=no, user_namespaces=no), policy=no)
    with pytest.raises(RuntimeUnavailable, match=f"take '{claim}' out of SANDMESH_KUBERNETES_DECLARED"):
        await proofs(found, declared=(claim,))


@pytest.mark.parametrize("posture", ["baseline", "restricted"])
async def test_a_lower_posture_rests_on_a_policy_that_is_enforced_or_on_the_operators_word(posture: str) -> None:
    with pytest.raises(RuntimeUnavailable, match=r'state it: SANDMESH_KUBERNETES_DECLARED=\["network-policy"\]'):
        await proofs(Found(), posture=posture)
    for declared in ((), ("network-policy",)):
        with pytest.raises(RuntimeUnavailable, match="the network plugin enforces none"):
            await proofs(Found(policy=CanaryResult.CONTRADICTED), posture=posture, declared=declared)
    assert (await proofs(Found(policy=CanaryResult.HOLDS), posture=posture)).network_policy is CanaryResult.HOLDS
    word = await proofs(Found(), posture=posture, declared=("network-policy",))
    assert word.network_policy is not None
    assert word.network_policy.value == "declared by the operator"


async def _connects(wanted: str, port: int) -> asyncio.subprocess.Process:
    program = CONNECT.replace(str(PORT), str(port)).replace(MESSAGE_FILE, "/dev/stdout")
    command = (sys.executable, "-I", "-S", "-c", program, "127.0.0.1", wanted)
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def test_a_pod_that_may_connect_waits_for_what_listens_and_one_that_may_not_is_sure_of_it() -> None:
    port = free_port()
    free, kept = await asyncio.gather(*(_connects(wanted, port) for wanted in ("open", "shut")))
    # Three failures in a row are enough for the other.
    assert (await kept.communicate())[0] == b"shut"
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
        assert (await free.communicate())[0] == b"open"


@pytest.mark.parametrize(
    ("name", "handler", "kernel", "node"),
    [
        ("gvisor", "runsc", GVISOR, "6.18.5"),
        ("safe", "gvisor", GVISOR, ""),
        ("kata", "kata-qemu", GUEST, "6.18.5"),
        ("kata-fc", "kata-fc", GUEST, ""),
        ("own", "crun", NODE, "6.18.5"),
        ("gvisor", "runsc", "", ""),
    ],
)
def test_a_kernel_that_a_runtime_class_promises_is_taken(name: str, handler: str, kernel: str, node: str) -> None:
    check_kernel(name, handler, kernel, node)


@pytest.mark.parametrize(
    ("name", "handler", "kernel"),
    [("gvisor", "runsc", NODE), ("kata", "kata-qemu", NODE), ("kata-fc", "kata", GVISOR), ("fast", "runsc", GUEST)],
)
def test_a_kernel_that_a_runtime_class_does_not_promise_is_refused(name: str, handler: str, kernel: str) -> None:
    with pytest.raises(RuntimeUnavailable, match=f"pods of the RuntimeClass {name} see the kernel Linux"):
        check_kernel(name, handler, kernel, "6.18.5")


@pytest.mark.parametrize(
    ("kernel", "release", "isolation"),
    [(GVISOR, "6.18.5", "user-space kernel"), (GUEST, "6.18.5", "virtual machine"), (GUEST, "", "namespaces")],
)
async def test_the_boundary_of_a_runtime_class_is_what_its_kernel_shows(
    kernel: str, release: str, isolation: str
) -> None:
    found = Found(Facts(kernel=kernel, node="machine"), release=release)
    assert (await proofs(found, runtime_class="own")).isolation == isolation


def test_a_lower_posture_has_less_and_the_lowest_neither_a_secret_nor_another_uid() -> None:
    made = {
        name: pod(settings(posture=name), "one", sandbox_pb2.SandboxSpec(template="base"), "base", "", "pin")["spec"]
        for name in ("full", "baseline", "restricted")
    }
    contexts = {name: spec["containers"][0]["securityContext"] for name, spec in made.items()}
    assert "NET_ADMIN" in contexts["full"]["capabilities"]["add"]
    assert "NET_ADMIN" not in contexts["baseline"]["capabilities"]["add"]
    assert contexts["restricted"]["capabilities"] == {"drop": ["ALL"]}
    assert contexts["restricted"]["runAsNonRoot"]
    assert not [volume for volume in made["restricted"]["volumes"] if "secret" in volume]
    assert [spec["containers"][0]["args"][1] for spec in made.values()] == ["1000,8571", "1000", "1000"]
    assert made["restricted"]["containers"][0]["args"][2] == "--waits"
    assert not capabilities({}, "restricted").separate_user
    assert enforced(sandbox_pb2.Limits(), {}, "restricted")["user"] == "uid 1000, as its agent"


def test_pods_have_a_user_namespace_of_their_own_only_where_the_cluster_is_said_to_make_them() -> None:
    spec = sandbox_pb2.SandboxSpec(template="base")
    assert "hostUsers" not in pod(settings(), "one", spec, "base", "")["spec"]
    assert pod(settings(declared=("user-namespaces",)), "one", spec, "base", "")["spec"]["hostUsers"] is False
