"""The Helm chart's services as pods of a real cluster: a call through them, and an upgrade while calls go on."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.errors import SandmeshError
from sandmeshd.drivers.engine.images.build import MESH, ImageBuilder
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from tests.cluster import NAMESPACE, Cluster, own_cluster
from tests.engine import build_image, run
from tests.helm import helm

pytestmark = [pytest.mark.needs("root", "docker", "kubernetes"), pytest.mark.timeout(1200)]

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "sandmesh"
RELEASE, OWN, CLASS = "one", "mesh", "own"
GATEWAY = f"{RELEASE}-sandmesh-gateway"
MESH_USER = 10001
FEWEST_CALLS = 30
GONE_SECONDS = 60.0
KUBERNETES_1_20 = "autoscaling/v2beta2"
MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""The Prometheus operator's kind, as far as it is needed to be taken."""


@dataclass(frozen=True)
class Release:
    """An installed chart, and how clients reach its gateways."""

    cluster: Cluster
    images: tuple[str, str]
    """Two tags of the image of the services: one that is installed, and one to upgrade to."""
    base_url: str
    token: str
    authority: str

    def box(self) -> BaseSandboxAsync:
        """Return a sandbox that is to be made through the gateways."""
        return BaseSandboxAsync(base_url=self.base_url, bearer_token=self.token, ca_cert=self.authority)

    @asynccontextmanager
    async def described(self) -> AsyncGenerator[None]:
        """Add to an error of the mesh what its pods are doing."""
        try:
            yield
        except SandmeshError as error:
            error.add_note(f"{error.facts}\n{_state(self.cluster)}")
            raise


@dataclass
class Load:
    """Calls that were made one after the other, and those that failed."""

    calls: int = 0
    failures: list[str] = field(default_factory=list[str])
    slowest: float = 0.0


def _helm(cluster: Cluster, *arguments: str, values: object = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [str(helm()), *arguments, "--namespace", OWN, "--kubeconfig", str(cluster.kubeconfig)]
    files = [] if values is None else ["--values", "-"]
    done = subprocess.run(
        [*command, *files], env=environment, input=json.dumps(values), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{_state(cluster)}"
    return done.stdout


def _state(cluster: Cluster) -> str:
    """Tell what its pods are waiting for."""
    pods = cluster.request("GET", f"/api/v1/namespaces/{OWN}/pods")["items"]
    events = cluster.request("GET", f"/api/v1/namespaces/{OWN}/events")["items"]
    lines = [f"{pod['metadata']['name']} {json.dumps(pod['status'])}" for pod in pods]
    return "\n".join([*lines, *(event["message"] for event in events[-30:])])


def _values(tag: str) -> dict[str, object]:
    return {
        "image": {"tag": tag},
        "sandboxes": {"namespace": NAMESPACE, "createNamespace": False, "imageTag": _tag("base")[1]},
        "store": {"persistence": {"storageClass": CLASS}},
        "gateway": {"drainSeconds": 5},
    }


def _tag(image: str) -> tuple[str, str]:
    """Return the name and the tag of an image that is built."""
    paths = MeshPaths("suite-images", default_state_directory(), default_runtime_directory())
    name, _, tag = ImageBuilder(DockerSettings(paths=paths)).image_name(image).rpartition(":")
    return name, tag


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster that serves Services, with the image of the mesh's own services and a volume for the store."""
    folder = tmp_path_factory.mktemp("serving")
    data = folder / "data"
    data.mkdir()
    os.chown(data, MESH_USER, MESH_USER)
    with own_cluster(folder, serves=True) as cluster:
        build_image(cluster.engine, MESH)
        name, tag = _tag(MESH)
        run("docker", "--host", cluster.engine, "tag", f"{name}:{tag}", f"{name}:next")
        volume = {
            "metadata": {"name": "data"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": str(data)},
                "storageClassName": CLASS,
            },
        }
        cluster.request("POST", "/api/v1/persistentvolumes", volume)
        cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", MONITORS)
        yield cluster


@pytest.fixture(scope="module")
def release(serving: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Install the chart, wait until all of it is ready, and remove it."""
    tag = _tag(MESH)[1]
    options = ("--create-namespace", "--wait", "--timeout", "8m")
    _helm(serving, "install", RELEASE, str(CHART), *options, values=_values(tag))
    network = serving.services
    assert network is not None
    port = network.publish(GATEWAY, OWN, 8570)
    authority = tmp_path_factory.mktemp("client") / "ca.pem"
    authority.write_bytes(_secret(serving, f"{RELEASE}-sandmesh-tls", "ca.crt"))
    token = _secret(serving, f"{RELEASE}-sandmesh-admin-token", "token").decode()
    yield Release(serving, (tag, "next"), f"grpcs://localhost:{port}", token, str(authority))
    _wait_for_no_sandbox(serving)
    _helm(serving, "uninstall", RELEASE, "--wait", "--timeout", "3m")


def _secret(cluster: Cluster, name: str, key: str) -> bytes:
    data = cluster.request("GET", f"/api/v1/namespaces/{OWN}/secrets/{name}")["data"]
    return base64.b64decode(data[key])


def _wait_for_no_sandbox(cluster: Cluster) -> None:
    ends = time.monotonic() + GONE_SECONDS
    while left := cluster.names("pods"):
        assert time.monotonic() < ends, left
        time.sleep(0.2)


def test_helm_s_own_test_makes_a_call_through_the_services(release: Release) -> None:
    said = _helm(release.cluster, "test", RELEASE, "--timeout", "4m")
    assert "Succeeded" in said


async def test_a_call_goes_through_the_chart_s_gateways_to_a_pod(release: Release) -> None:
    async with release.box() as box:
        assert (await box.run_ipython_cell("print(6 * 7)")).text.strip() == "42"
        assert [name for name in release.cluster.names("pods") if name]
    with pytest.raises(SandmeshError, match=r"UNAUTHENTICATED|token"):
        async with BaseSandboxAsync(
            base_url=release.base_url, ca_cert=release.authority, bearer_token=release.token[::-1]
        ):
            pass


def test_everything_that_can_be_set_is_taken_by_the_server(release: Release) -> None:
    """What a newer server has is in `tests/unit/test_helm_chart.py`."""
    everything = {
        **_values(release.images[0]),
        "mcp": {"enabled": True},
        "gateway": {"autoscaling": {"enabled": True}},
        "metrics": {"serviceMonitor": {"enabled": True}},
        "sandboxes": {
            "namespace": NAMESPACE,
            "createNamespace": False,
            "quota": {"pods": "20"},
            "limitRange": [{"type": "Container", "max": {"memory": "8Gi"}}],
        },
    }
    said = _helm(release.cluster, "upgrade", RELEASE, str(CHART), "--dry-run=server", values=everything)
    kinds = ("HorizontalPodAutoscaler", "ServiceMonitor", "PodDisruptionBudget", "ResourceQuota", "LimitRange")
    assert [kind for kind in kinds if f"kind: {kind}" not in said] == []
    assert f"apiVersion: {KUBERNETES_1_20}" in said


def test_the_budget_lets_one_gateway_go_at_a_time(release: Release) -> None:
    path = f"/apis/policy/v1beta1/namespaces/{OWN}/poddisruptionbudgets/{GATEWAY}"
    ends = time.monotonic() + GONE_SECONDS
    while (status := release.cluster.request("GET", path)["status"])["disruptionsAllowed"] != 1:
        assert time.monotonic() < ends, status
        time.sleep(0.5)
    assert status["expectedPods"] == 2


async def test_an_upgrade_of_all_services_fails_no_call(release: Release, request: pytest.FixtureRequest) -> None:
    before = _pods(release.cluster)
    async with release.described(), release.box() as one, release.box() as two, release.box() as three:
        upgraded = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            loads = [group.create_task(_call(box, upgraded)) for box in (one, two, three)]
            options = ("--wait", "--timeout", "8m")
            await asyncio.to_thread(
                _helm, release.cluster, "upgrade", RELEASE, str(CHART), *options, values=_values(release.images[1])
            )
            await asyncio.to_thread(_wait_for_other_pods, release.cluster, before)
            upgraded.set()
        done = [load.result() for load in loads]
    calls, slowest = sum(load.calls for load in done), max(load.slowest for load in done)
    request.config.get_terminal_writer().line(f"calls during the upgrade: {calls}, the slowest took {slowest:.2f} s")
    assert [failure for load in done for failure in load.failures] == []
    assert min(load.calls for load in done) >= FEWEST_CALLS
    assert not before & _pods(release.cluster)


async def _call(box: BaseSandboxAsync, ended: asyncio.Event) -> Load:
    """Make calls one after the other, and count those that fail."""
    load = Load()
    while not ended.is_set():
        began = time.monotonic()
        try:
            answer = await box.run_ipython_cell(f"print({load.calls})")
        except SandmeshError as error:
            load.failures.append(f"{time.strftime('%X')} {error!r} {error.facts}")
        else:
            if answer.text.strip() != str(load.calls):
                load.failures.append(f"call {load.calls} was answered with {answer.text!r}")
        load.calls += 1
        load.slowest = max(load.slowest, time.monotonic() - began)
    return load


def _pods(cluster: Cluster) -> set[str]:
    """Return the pods of the services, and not that of `helm test`."""
    found = cluster.request("GET", f"/api/v1/namespaces/{OWN}/pods?labelSelector=app.kubernetes.io/component")["items"]
    return {one["metadata"]["uid"] for one in found}


def _wait_for_other_pods(cluster: Cluster, before: set[str]) -> None:
    """Return when the last of the replaced pods has ended."""
    ends = time.monotonic() + GONE_SECONDS
    while before & _pods(cluster):
        assert time.monotonic() < ends, _state(cluster)
        time.sleep(0.2)
