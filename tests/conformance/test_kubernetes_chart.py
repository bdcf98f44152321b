"""The Helm chart on a real API server: it is taken as it is, and the role that it makes is enough for the driver."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import InternalError, SandboxStartFailed
from sandmeshd.drivers.kubernetes.names import object_name
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import NAMESPACE, Cluster
from tests.conformance.clusters import direct, settings_of
from tests.helm import helm

pytestmark = [pytest.mark.needs("root", "docker", "kubernetes"), pytest.mark.timeout(600)]

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "sandmesh"
RELEASE, OWN = "one", "mesh"
DRIVER = f"{RELEASE}-sandmesh-driver"
LONGER_THAN_A_RENEWAL = 4.0
# No machine here has an image of the services: only what the API server says of them is tested.
VALUES = ("sandboxes.createNamespace=false", f"sandboxes.namespace={NAMESPACE}", "store.persistence.enabled=false")
TOKEN_SECONDS = 60.0


def _helm(cluster: Cluster, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [str(helm()), *arguments, "--namespace", OWN, "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """Install the chart, and remove it."""
    settings = [part for value in VALUES for part in ("--set", value)]
    _helm(cluster, "install", RELEASE, str(CHART), "--create-namespace", *settings)
    yield cluster
    _helm(cluster, "uninstall", RELEASE)


def _token(cluster: Cluster) -> str:
    deadline = time.monotonic() + TOKEN_SECONDS
    while time.monotonic() < deadline:
        for secret in cluster.request("GET", f"/api/v1/namespaces/{OWN}/secrets")["items"]:
            account = secret["metadata"].get("annotations", {}).get("kubernetes.io/service-account.name")
            if account == DRIVER and "token" in secret.get("data", {}):
                return base64.b64decode(secret["data"]["token"]).decode()
        time.sleep(0.5)
    raise AssertionError("the cluster made no token of the driver's account")


async def test_the_role_of_the_chart_has_exactly_the_verbs_that_the_driver_calls(
    installed: Cluster, paths: MeshPaths, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    installed.write_kubeconfig(file, _token(installed))
    settings = settings_of(installed, paths).model_copy(update={"kubeconfig": file})
    async with direct(settings)() as driver:
        async for _ in driver.prepare_template(pb.PrepareTemplateRequest(template="base")):
            pass
        spec = sandbox_pb2.SandboxSpec(template="base")
        request = pb.CreateSandboxRequest(sandbox_id="one", mesh_id=paths.mesh_id, spec=spec, fencing_token=1)
        made = await driver.create_sandbox(request)
        assert made.sandbox.state == pb.RUNTIME_STATE_RUNNING
        await driver.get_logs(pb.GetLogsRequest(sandbox_id="one"))
        await driver.install_token(pb.InstallTokenRequest(sandbox_id="one", fencing_token=2))
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
        # A name that somebody else has is looked at.
        name = object_name(paths.mesh_id, "two")
        installed.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": {"name": name}})
        request.sandbox_id = "two"
        with pytest.raises(InternalError, match="something else"):
            await driver.create_sandbox(request)
    # A start that takes too long tells of the pod's last event; a mesh that ends takes its policy along.
    lone = {"node_selector": {"pool": "none"}, "start_timeout": LONGER_THAN_A_RENEWAL, "ends_with_driver": True}
    async with direct(settings.model_copy(update=lone))() as driver:
        with pytest.raises(SandboxStartFailed, match="did not start within"):
            await driver.create_sandbox(request)
    await _used_exactly(installed)


async def _used_exactly(cluster: Cluster) -> None:
    """Check the requests of the driver's account against its role; a watch is in the log once it has ended."""
    role = cluster.request("GET", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/{DRIVER}")
    granted = {
        (verb, f"{resource}.{group}" if group else resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    deadline = time.monotonic() + TOKEN_SECONDS
    used: set[tuple[str, str]] = set()
    while used != granted and time.monotonic() < deadline:
        requests = await asyncio.to_thread(cluster.audit, f"system:serviceaccount:{OWN}:{DRIVER}")
        # Who somebody is may be asked by everybody.
        used = {request for request in requests if not request[1].endswith(".authorization.k8s.io")}
        await asyncio.sleep(0.2)
    assert used == granted


def test_an_upgrade_keeps_the_secrets_that_were_made(installed: Cluster) -> None:
    def made() -> dict[str, object]:
        secrets = installed.request("GET", f"/api/v1/namespaces/{OWN}/secrets")["items"]
        names = {f"{RELEASE}-sandmesh-{what}" for what in ("secret", "admin-token", "store", "tls")}
        return {secret["metadata"]["name"]: secret["data"] for secret in secrets if secret["metadata"]["name"] in names}

    before = made()
    settings = [part for value in (*VALUES, "gateway.replicas=3") for part in ("--set", value)]
    _helm(installed, "upgrade", RELEASE, str(CHART), *settings)
    assert len(before) == 4
    assert made() == before
    deployed = installed.request("GET", f"/apis/apps/v1/namespaces/{OWN}/deployments/{RELEASE}-sandmesh-gateway")
    assert deployed["spec"]["replicas"] == 3
