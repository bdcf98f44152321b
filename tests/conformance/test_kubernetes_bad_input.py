"""What a cluster cannot use, and an environment that misleads: errors say what to do, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandboxStartFailed, TemplateBuildFailed
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.kubernetes.names import policy_name
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import NAMESPACE, Cluster, control_plane
from tests.conformance.clusters import direct, leftovers, settings_of, subject_of
from tests.faults.programs import FAKETIME

pytestmark = [pytest.mark.needs("root", "docker", "kubernetes"), pytest.mark.timeout(600)]

GONE_SECONDS = 60.0
NOBODY = "http://127.0.0.1:9"
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "all_proxy", "grpc_proxy")

WHOLE_LIFE = """
import asyncio, sys
from pathlib import Path
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths

mesh, state, runtime, kubeconfig, reach = sys.argv[1:]

async def main():
    paths = MeshPaths(mesh, Path(state), Path(runtime))
    settings = KubernetesSettings(paths=paths, kubeconfig=Path(kubeconfig), reach=reach)
    async with open_plugin("kubernetes", settings) as driver:
        spec = sandbox_pb2.SandboxSpec(template="base")
        request = pb.CreateSandboxRequest(sandbox_id="one", mesh_id=mesh, spec=spec, fencing_token=1)
        made = (await driver.create_sandbox(request)).sandbox
        print((await run(made, "echo here", 1)).stdout, end="")
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))

asyncio.run(main())
"""
"""A driver in a process with an environment of its own, and a sandbox from its create to its end."""


async def _whole_life(cluster: Cluster, paths: MeshPaths, reach: str, environment: dict[str, str]) -> str:
    arguments = (paths.mesh_id, paths.state_root, paths.runtime_root, cluster.kubeconfig, reach)
    command = [sys.executable, "-c", WHOLE_LIFE, *map(str, arguments)]
    own = {**os.environ, **environment}
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=own)
    said, _ = await process.communicate()
    assert process.returncode == 0
    # What the driver logs comes before.
    return said.decode().splitlines()[-1]


@pytest.mark.parametrize("reach", ["pods", "port-forward"])
async def test_proxies_of_the_environment_catch_neither_the_api_server_nor_pods(
    cluster: Cluster, paths: MeshPaths, reach: str
) -> None:
    assert await _whole_life(cluster, paths, reach, dict.fromkeys(PROXIES, NOBODY)) == "here"
    assert leftovers(cluster, paths.mesh_id) == set()


@pytest.mark.needs("faketime")
@pytest.mark.parametrize("skew", ["-2h", "+2h"])
async def test_a_driver_whose_clock_is_hours_off_has_sandboxes_as_any_other(
    cluster: Cluster, paths: MeshPaths, skew: str
) -> None:
    clock = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    assert await _whole_life(cluster, paths, "pods", clock) == "here"
    assert leftovers(cluster, paths.mesh_id) == set()


@pytest.mark.parametrize("renewed", ["2001-01-01T00:00:00.000000Z", "2101-01-01T00:00:00.000000Z"])
async def test_a_holder_whose_clock_is_years_off_and_who_is_gone_is_taken_over(
    cluster: Cluster, paths: MeshPaths, renewed: str
) -> None:
    settings = settings_of(cluster, paths)
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 10, "renewTime": renewed}
    lease = {"metadata": {"name": policy_name(paths.mesh_id)}, "spec": spec}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    await asyncio.to_thread(cluster.request, "POST", leases, lease)
    async with direct(settings)():
        now = await asyncio.to_thread(cluster.request, "GET", f"{leases}/{policy_name(paths.mesh_id)}")
        assert now["spec"]["holderIdentity"] != "another"


async def test_an_image_that_no_registry_gives_ends_the_start_with_the_machines_words_and_leaves_nothing(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths).model_copy(update={"registry": "127.0.0.1:9"})
    async with direct(settings)() as driver:
        with pytest.raises(TemplateBuildFailed, match=r"127\.0\.0\.1:9/.* cannot be used: ErrImagePull: .*; push it"):
            await driver.create_sandbox(subject_of(cluster, settings, direct(settings)).request())
    assert leftovers(cluster, paths.mesh_id) == set()


async def test_names_and_labels_that_are_too_long_for_the_api_are_those_of_sandboxes_all_the_same(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    request = subject_of(cluster, settings, direct(settings)).request()
    request.sandbox_id = f"{'Long_' * 25}.x"
    async with direct(settings)() as driver:
        made = (await driver.create_sandbox(request)).sandbox
        assert made.sandbox_id == request.sandbox_id
        assert (await run(made, "echo here")).stdout == "here\n"
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=request.sandbox_id))
    assert leftovers(cluster, paths.mesh_id) == set()


@pytest.fixture(scope="module")
def with_volumes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster that knows volumes which go with pods, and a machine that no kubelet stands behind."""
    with control_plane(tmp_path_factory.mktemp("volumes"), features=("GenericEphemeralVolume",)) as cluster:
        node = {"metadata": {"name": "stand-in"}}
        cluster.request("POST", "/api/v1/nodes", node)
        room = {"cpu": "100", "memory": "100Gi", "pods": "1000"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"status": {"conditions": [ready], "capacity": room, "allocatable": room}}
        cluster.request("PATCH", "/api/v1/nodes/stand-in/status", status)
        cluster.request("PATCH", "/api/v1/nodes/stand-in", {"spec": {"taints": None}})
        yield cluster


async def test_a_volume_that_cannot_bind_ends_the_start_with_what_to_check_and_leaves_nothing(
    with_volumes: Cluster, paths: MeshPaths
) -> None:
    settings: KubernetesSettings = settings_of(with_volumes, paths).model_copy(
        update={"workspace": "volume", "storage_class": "nowhere", "schedule_timeout": 5.0}
    )
    async with direct(settings)() as driver:
        with pytest.raises(
            SandboxStartFailed,
            match=r"within 5 s: .*(?i:persistentvolumeclaim).*; check that the StorageClass",
        ):
            await driver.create_sandbox(subject_of(with_volumes, settings, direct(settings)).request())
    assert leftovers(with_volumes, paths.mesh_id) == set()
    # The claim is the pod's, and goes with it.
    async with asyncio.timeout(GONE_SECONDS):
        while await _claims(with_volumes):
            pass


async def _claims(cluster: Cluster) -> Any:
    path = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    return (await asyncio.to_thread(cluster.request, "GET", path))["items"]
