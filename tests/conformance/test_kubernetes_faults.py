"""What befalls a cluster and its drivers: sandboxes that are there stay, ends have their reasons, nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.error import HTTPError

import pytest
from structlog.testing import capture_logs

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import LeaseLost, SandboxStartFailed, TemplateBuildFailed
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.conformance.sandbox_end import end_of
from sandmeshd.drivers.kubernetes import records
from sandmeshd.drivers.kubernetes.names import object_name, policy_name, selector
from sandmeshd.drivers.kubernetes.pods.deletion import DELETE_SECONDS
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import NAMESPACE, Cluster
from tests.conformance.clusters import direct, leftovers, settings_of, subject_of

pytestmark = [pytest.mark.needs("root", "docker", "kubernetes"), pytest.mark.timeout(600)]

PATIENCE_SECONDS = DELETE_SECONDS + 30.0
"""A kubelet may take most of a minute to let a pod go that it has just begun."""
STAND_IN = "stand-in"
ENDS = {
    "Evicted": {"reason": "Evicted", "message": "The node was low on resource: memory."},
    "NodeLost": {"reason": "NodeLost", "message": "Node machine which was running the pod is unresponsive"},
    "Preempting": {"reason": "Preempting", "message": "Preempted in order to admit critical pod"},
    "OutOfmemory": {"reason": "OutOfmemory", "message": "Node didn't have enough resource: memory"},
}
"""Statuses that kubelets and controllers write, as they are written here in their place."""

STEPS = ("record", "pod", "running", "owned")
"""What there is after each step of a create: the Secret, the pod, its container, and the Secret's owner."""

CREATES = int(os.environ.get("SANDMESH_TEST_CLUSTER_KILLS", "4"))
"""How many creates a driver is killed in the middle of, at one step after the other; the long form is 50."""

KILLED_DRIVER = """
import asyncio, sys
from pathlib import Path
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths

mesh, state, runtime, kubeconfig, count = sys.argv[1:]

async def main():
    paths = MeshPaths(mesh, Path(state), Path(runtime))
    settings = KubernetesSettings(paths=paths, kubeconfig=Path(kubeconfig), reach="pods")
    async with open_plugin("kubernetes", settings) as driver:
        print("open", flush=True)
        # The one before, whose create was broken off, is repeated, as an allocator does.
        for number in range(max(0, int(count) - 2), int(count)):
            await driver.create_sandbox(request(number))
        await asyncio.Event().wait()

def request(number):
    spec = sandbox_pb2.SandboxSpec(template="base")
    return pb.CreateSandboxRequest(sandbox_id=f"one-{number}", mesh_id=mesh, spec=spec, fencing_token=1)

asyncio.run(main())
"""


def _pod(mesh_id: str, sandbox_id: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/pods/{object_name(mesh_id, sandbox_id)}"


async def _request(cluster: Cluster, method: str, path: str, body: object = None) -> Any:
    return await asyncio.to_thread(cluster.request, method, path, body)


async def _detail(driver: Driver, sandbox_id: str, wanted: str) -> None:
    """Wait until the end of a sandbox is told with some words."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = (await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox_id))).sandbox
            if found.state == pb.RUNTIME_STATE_ENDED and wanted in found.end_detail:
                return
            await asyncio.sleep(0.05)


async def test_a_watch_whose_place_is_forgotten_lists_again_and_tells_what_ended_meanwhile(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    subject = subject_of(cluster, settings, direct(settings))
    with capture_logs() as logs:
        async with (
            direct(settings)() as driver,
            subject.sandbox(driver) as sandbox,
            end_of(driver, subject, sandbox.sandbox_id),
        ):
            # A server that starts again knows nothing older than what it then reads.
            await asyncio.to_thread(cluster.server.kill)
            await asyncio.to_thread(cluster.server.start)
            await asyncio.to_thread(cluster.wait_for_server)
            now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            await _request(cluster, "DELETE", _pod(paths.mesh_id, sandbox.sandbox_id), now)
    assert any("the pods are listed again" in entry["event"] for entry in logs)
    assert leftovers(cluster, paths.mesh_id) == set()


async def test_a_kubelet_that_is_killed_costs_no_call_and_deletes_end_once_it_is_back(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    subject = subject_of(cluster, settings, direct(settings))
    async with direct(settings)() as driver, subject.sandbox(driver) as sandbox:
        await asyncio.to_thread(cluster.kubelet.kill)
        try:
            assert (await run(sandbox, "echo here")).stdout == "here\n"
            request = pb.DeleteSandboxRequest(sandbox_id=sandbox.sandbox_id)
            deleting = asyncio.create_task(driver.delete_sandbox(request))
            await _detail(driver, sandbox.sandbox_id, "")
            assert not deleting.done()
        finally:
            await asyncio.to_thread(cluster.kubelet.start)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await deleting
    assert leftovers(cluster, paths.mesh_id) == set()


async def test_evictions_lost_nodes_and_preemptions_are_told_by_their_names(cluster: Cluster, paths: MeshPaths) -> None:
    settings = settings_of(cluster, paths)
    subject = subject_of(cluster, settings, direct(settings))
    async with direct(settings)() as driver, subject.sandbox(driver) as sandbox:
        path = f"{_pod(paths.mesh_id, sandbox.sandbox_id)}/status"
        # It would write over what it did not write.
        await asyncio.to_thread(cluster.kubelet.kill)
        try:
            for name, status in ENDS.items():
                await _request(cluster, "PATCH", path, {"status": {"phase": "Failed", **status}})
                await _detail(driver, sandbox.sandbox_id, f"{name}: {status['message']}")
            target = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": "gone",
            }
            await _request(cluster, "PATCH", path, {"status": {"conditions": [target]}})
            await _detail(driver, sandbox.sandbox_id, "PreemptionByScheduler: gone")
        finally:
            await asyncio.to_thread(cluster.kubelet.start)
    assert leftovers(cluster, paths.mesh_id) == set()


async def _pods(cluster: Cluster, paths: MeshPaths, number: int) -> None:
    """Return when a mesh has some pods."""
    found: list[str] = []
    while len(found) < number:
        found = await asyncio.to_thread(cluster.names, "pods", selector(paths.mesh_id))


@asynccontextmanager
async def _stand_in(cluster: Cluster, paths: MeshPaths) -> AsyncGenerator[KubernetesSettings]:
    """Add a machine without a kubelet, and yield the settings of a driver whose pods it gets."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    room = {"cpu": "100", "memory": "100Gi", "pods": "1000"}
    node = {"metadata": {"name": STAND_IN, "labels": {"pool": STAND_IN}}}
    await _request(cluster, "POST", "/api/v1/nodes", node)
    try:
        status = {"status": {"conditions": [ready], "capacity": room, "allocatable": room}}
        await _request(cluster, "PATCH", f"/api/v1/nodes/{STAND_IN}/status", status)
        await _request(cluster, "PATCH", f"/api/v1/nodes/{STAND_IN}", {"spec": {"taints": None}})
        yield settings_of(cluster, paths).model_copy(update={"node_selector": {"pool": STAND_IN}})
    finally:
        await _request(cluster, "DELETE", f"/api/v1/nodes/{STAND_IN}")


@asynccontextmanager
async def _vanishing(cluster: Cluster, paths: MeshPaths) -> AsyncGenerator[None]:
    """Take pods away that are being deleted, as the kubelet of their machine would."""

    async def take() -> None:
        listed = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector(paths.mesh_id)}"
        now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        while True:
            for pod in (await _request(cluster, "GET", listed))["items"]:
                if pod["metadata"].get("deletionTimestamp"):
                    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
                    await _request(cluster, "DELETE", path, now)
            await asyncio.sleep(0.1)

    taking = asyncio.create_task(take())
    try:
        yield
    finally:
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)


def _waiting(reason: str) -> dict[str, Any]:
    waiting = {"reason": reason, "message": f"{reason} of the tests"}
    container = {"name": "agent", "image": "base", "imageID": "", "ready": False, "restartCount": 0}
    return {"status": {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}}


async def test_a_pull_that_backs_off_for_the_third_time_ends_the_start_and_leaves_nothing(
    cluster: Cluster, paths: MeshPaths
) -> None:
    async with _stand_in(cluster, paths) as settings, direct(settings)() as driver, _vanishing(cluster, paths):
        request = subject_of(cluster, settings, direct(settings)).request()
        creating = asyncio.create_task(driver.create_sandbox(request))
        path = f"{_pod(paths.mesh_id, request.sandbox_id)}/status"
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _pods(cluster, paths, 1)
            for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
                assert not creating.done()
                await _request(cluster, "PATCH", path, _waiting(reason))
                await asyncio.sleep(0.5)
            with pytest.raises(TemplateBuildFailed, match="ErrImagePull of the tests; push it where"):
                await creating
    assert leftovers(cluster, paths.mesh_id) == set()


async def test_a_pod_that_is_preempted_before_it_started_fails_its_create_with_the_reason(
    cluster: Cluster, paths: MeshPaths
) -> None:
    async with _stand_in(cluster, paths) as settings, direct(settings)() as driver, _vanishing(cluster, paths):
        request = subject_of(cluster, settings, direct(settings)).request()
        creating = asyncio.create_task(driver.create_sandbox(request))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _pods(cluster, paths, 1)
            status = {"status": {"phase": "Failed", **ENDS["Preempting"]}}
            await _request(cluster, "PATCH", f"{_pod(paths.mesh_id, request.sandbox_id)}/status", status)
            with pytest.raises(SandboxStartFailed, match="Preempted in order to admit critical pod"):
                await creating
    assert leftovers(cluster, paths.mesh_id) == set()


async def test_two_meshes_in_one_namespace_know_nothing_of_each_other(cluster: Cluster, paths: MeshPaths) -> None:
    first = settings_of(cluster, paths)
    second = first.model_copy(update={"paths": MeshPaths(f"{paths.mesh_id}2", paths.state_root, paths.runtime_root)})
    one, two = (subject_of(cluster, settings, direct(settings)) for settings in (first, second))
    async with direct(first)() as driver, direct(second)() as other:
        request, same = one.request(), two.request()
        same.sandbox_id = request.sandbox_id
        made, twin = await asyncio.gather(driver.create_sandbox(request), other.create_sandbox(same))
        listed = await other.list_sandboxes(pb.ListSandboxesRequest(mesh_id=two.mesh_id))
        assert [sandbox.endpoint for sandbox in listed.sandboxes] == [twin.sandbox.endpoint] != [made.sandbox.endpoint]
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=request.sandbox_id))
        assert (await run(twin.sandbox, "echo here")).stdout == "here\n"
        await other.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=request.sandbox_id))
    assert leftovers(cluster, one.mesh_id) | leftovers(cluster, two.mesh_id) == set()


async def test_a_claim_that_a_driver_answered_right_before_its_end_is_known_to_the_next_one(
    cluster: Cluster, paths: MeshPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That driver never comes to write it, as one that is killed.
    monkeypatch.setattr(records, "WRITE_SECONDS", 3600)
    monkeypatch.setattr(records, "CLOSE_SECONDS", 0.01)
    settings = settings_of(cluster, paths)
    subject = subject_of(cluster, settings, direct(settings))
    claim = pb.InstallTokenRequest(fencing_token=7, record_labels={"session": "theirs"})
    async with direct(settings)() as driver:
        made = (await driver.create_sandbox(subject.request())).sandbox
        claim.sandbox_id = made.sandbox_id
        await driver.install_token(claim)
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{object_name(paths.mesh_id, made.sandbox_id)}"
    written = json.loads(b64decode((await _request(cluster, "GET", path))["data"]["record"]))
    assert written["fencing_token"] == 0
    monkeypatch.undo()
    async with direct(settings)() as driver:
        found = (await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=made.sandbox_id))).sandbox
        assert dict(found.record_labels) == {"session": "theirs"}
        claim.fencing_token = 6
        with pytest.raises(LeaseLost):
            await driver.install_token(claim)
        assert (await run(made, "echo here", 7)).stdout == "here\n"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while written["fencing_token"] != 7:
                written = json.loads(b64decode((await _request(cluster, "GET", path))["data"]["record"]))
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=made.sandbox_id))
    assert leftovers(cluster, paths.mesh_id) == set()


async def _reached(cluster: Cluster, mesh_id: str, sandbox_id: str, step: str) -> bool:
    """Return whether a create has come to a step."""
    kind = "pods" if step in ("pod", "running") else "secrets"
    try:
        path = f"/api/v1/namespaces/{NAMESPACE}/{kind}/{object_name(mesh_id, sandbox_id)}"
        found = await _request(cluster, "GET", path)
    except HTTPError:
        return False
    if step == "running":
        return bool(found["status"].get("phase") == "Running")
    return step != "owned" or bool(found["metadata"].get("ownerReferences"))


async def _kill_driver(cluster: Cluster, paths: MeshPaths, number: int) -> None:
    """Start a driver that finishes the create before that of a number, and kill it at a step of this one."""
    arguments = (paths.mesh_id, paths.state_root, paths.runtime_root, cluster.kubeconfig, number + 1)
    command = [sys.executable, "-c", KILLED_DRIVER, *map(str, arguments)]
    killed = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, start_new_session=True)
    assert killed.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await killed.stdout.readline() == b"open\n"
            while not await _reached(cluster, paths.mesh_id, f"one-{number}", STEPS[number % len(STEPS)]):
                pass
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        await killed.wait()
    # Its Lease runs out by itself, in 10 s.
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    await _request(cluster, "DELETE", f"{leases}/{policy_name(paths.mesh_id)}")


@pytest.mark.timeout(max(600, CREATES * 60))
async def test_a_driver_that_is_killed_at_each_step_of_creates_leaves_what_the_next_one_finishes_or_removes(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    for number in range(CREATES):
        await _kill_driver(cluster, paths, number)
    async with direct(settings)() as driver:
        found = (await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=paths.mesh_id))).sandboxes
        assert {sandbox.sandbox_id for sandbox in found} == {f"one-{number}" for number in range(CREATES)}
        tokens: set[str] = set()
        for sandbox in found:
            # What an allocator does with a create that was not answered: it repeats it.
            request = pb.CreateSandboxRequest(sandbox_id=sandbox.sandbox_id, mesh_id=paths.mesh_id, fencing_token=1)
            request.spec.CopyFrom(sandbox.spec)
            again = (await driver.create_sandbox(request)).sandbox
            tokens.add(again.agent_token)
            assert (await run(again, f"echo {sandbox.sandbox_id}", 1)).stdout == f"{sandbox.sandbox_id}\n"
        pods = await asyncio.to_thread(cluster.names, "pods", selector(paths.mesh_id))
        assert len(tokens) == len(pods) == CREATES
        deletes = (pb.DeleteSandboxRequest(sandbox_id=sandbox.sandbox_id) for sandbox in found)
        await asyncio.gather(*(driver.delete_sandbox(request) for request in deletes))
    assert leftovers(cluster, paths.mesh_id) == set()
