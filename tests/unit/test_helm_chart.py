"""The Helm chart: what it renders is valid, hardened, and names only what sandmesh has."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml
from google.protobuf.descriptor_pb2 import MethodOptions

from sandmesh.api.sandbox.v1 import sandbox_pb2
from tests.helm import helm

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "sandmesh"
NEWEST = "1.37"
OWN_SECRETS = {
    "secret": {"existingSecret": "mesh"},
    "adminToken": {"existingSecret": "admin"},
    "store": {"existingSecret": "redis"},
    "gateway": {"tls": {"existingSecret": "certificate"}},
}
LIMITS = [{"type": "Container", "max": {"memory": "8Gi"}, "defaultRequest": {"cpu": "100m"}}]
EVERYTHING = {
    "mcp": {"enabled": True},
    "gateway": {"autoscaling": {"enabled": True}},
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"team": "red"}}},
    "sandboxes": {
        "runtimeClass": "gvisor",
        "quota": {"pods": "20"},
        "limitRange": LIMITS,
        "pools": {"base": 2},
        "pullSecrets": ["registry"],
    },
    "store": {"persistence": {"enabled": False}},
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"pool": "mesh"},
    "tolerations": [{"key": "mesh", "operator": "Exists"}],
}
VALUES = {"by default": {}, "with secrets of one's own": OWN_SECRETS, "with everything": EVERYTHING}

pytestmark = pytest.mark.timeout(500)


def _helm(*arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(helm()), *arguments, "--values", "-"]
    return subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True, check=False)


def _render(values: Mapping[str, Any], version: str = NEWEST) -> list[dict[str, Any]]:
    done = _helm("template", "one", str(CHART), "--namespace", "mesh", "--kube-version", version, values=values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def _pods(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents:
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield document["metadata"]["name"], document["spec"]["template"]
        elif document["kind"] == "Pod":
            yield document["metadata"]["name"], document


every_rendering = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)


@every_rendering
def test_it_passes_lint(values: Mapping[str, Any]) -> None:
    done = _helm("lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout + done.stderr


@every_rendering
def test_what_it_renders_is_valid(values: Mapping[str, Any]) -> None:
    documents = _render(values)
    for document in documents:
        # A resource of the Prometheus operator's own, which is not among Kubernetes' schemas.
        if document["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(document, NEWEST, strict=True)
    kinds = {document["kind"] for document in documents}
    assert {"Deployment", "Role", "RoleBinding", "Service", "PodDisruptionBudget"} <= kinds
    assert ("HorizontalPodAutoscaler" in kinds) == (values is EVERYTHING)
    assert ({"ResourceQuota", "LimitRange", "ServiceMonitor"} <= kinds) == (values is EVERYTHING)
    assert ("Secret" in kinds) == (values is not OWN_SECRETS)
    assert ("StatefulSet" in kinds) == (values is not OWN_SECRETS)


def test_an_older_cluster_gets_the_versions_that_it_has() -> None:
    (budget,) = [resource for resource in _render({}, "1.20.2") if resource["kind"] == "PodDisruptionBudget"]
    assert budget["apiVersion"] == "policy/v1beta1"
    (scaler,) = [
        resource for resource in _render(EVERYTHING, "1.20.2") if resource["kind"] == "HorizontalPodAutoscaler"
    ]
    assert scaler["apiVersion"] == "autoscaling/v2beta2"


@every_rendering
def test_every_pod_is_an_ordinary_user_that_can_write_nothing_of_its_image(values: Mapping[str, Any]) -> None:
    for name, pod in _pods(_render(values)):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["enableServiceLinks"] is False, name
        assert spec["automountServiceAccountToken"] is name.endswith("-driver"), name
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert context["allowPrivilegeEscalation"] is False, name
            mounts = {mount["mountPath"] for mount in container.get("volumeMounts", [])}
            own = {one["value"] for one in container.get("env", []) if one["name"].endswith("_DIRECTORY")}
            # What is mounted is root's, and a service takes only directories of its user's.
            assert all(str(Path(path).parent) in mounts and path not in mounts for path in own), name
            given = {volume["name"] for volume in spec.get("volumes", [])} | {"data"}
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= given, name


@every_rendering
def test_services_lead_to_pods_and_ports_that_are_there(values: Mapping[str, Any]) -> None:
    documents = _render(values)
    pods = dict(_pods(documents))
    services = [document for document in documents if document["kind"] == "Service"]
    assert services
    for service in services:
        selector = service["spec"]["selector"].items()
        chosen = [pod for pod in pods.values() if selector <= pod["metadata"]["labels"].items()]
        assert len(chosen) == 1, service["metadata"]["name"]
        named = {port["name"] for container in chosen[0]["spec"]["containers"] for port in container.get("ports", [])}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named


def test_it_names_only_options_and_settings_that_there_are() -> None:
    options = set(re.findall(r"`(--[a-z-]+)", (ROOT / "docs" / "cli.md").read_text()))
    settings = set(re.findall(r"SANDMESH_[A-Z0-9_]+", (ROOT / "docs" / "configuration.md").read_text()))
    # Clients' own.
    settings |= {"SANDMESH_ADDRESS", "SANDMESH_TOKEN", "SANDMESH_CA_FILE"}
    used_options: set[str] = set()
    used_settings: set[str] = set()
    for _, pod in _pods(_render(EVERYTHING)):
        for container in pod["spec"]["containers"]:
            if container["name"] != "store":
                words = [*container.get("command", []), *container.get("args", [])]
                used_options |= {word.partition("=")[0] for word in words if word.startswith("-")}
            used_settings |= {one["name"] for one in container["env"] if one["name"].startswith("SANDMESH_")}
    assert "--listen" in used_options
    assert used_options - options == set()
    assert "SANDMESH_MESH_ID" in used_settings
    assert used_settings - settings == set()


def test_the_role_is_what_the_page_says_that_the_driver_needs() -> None:
    documents = _render(EVERYTHING)
    (role,) = [document for document in documents if document["kind"] == "Role"]
    granted = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    table = page.partition("## Rights")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z/]+)(?: \([a-z0-9.]+\))? \| ([a-z, ]+) \|$", table, re.MULTILINE)
    assert granted == {resource: set(verbs.split(", ")) for resource, verbs in rows if resource != "resource"}
    (cluster_role,) = [document for document in documents if document["kind"] == "ClusterRole"]
    assert cluster_role["rules"] == [{"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": ["list"]}]
    assert not [resource for resource in _render({}) if resource["kind"] == "ClusterRole"]


def test_secrets_that_it_makes_are_long_and_of_this_installation_alone() -> None:
    first, second = (
        {made["metadata"]["name"]: made for made in _render({}) if made["kind"] == "Secret"} for _ in range(2)
    )
    assert set(first) == {"one-sandmesh-secret", "one-sandmesh-admin-token", "one-sandmesh-store", "one-sandmesh-tls"}
    for name, secret in first.items():
        assert secret["data"] != second[name]["data"]
        assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert len(base64.b64decode(first["one-sandmesh-secret"]["data"]["secret"])) == 64


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gatway": {"replicas": 2}}, "additional properties 'gatway' not allowed"),
        ({"gateway": {"replicas": 0}}, "/gateway/replicas"),
        ({"sandboxes": {"namespace": "Not A Name"}}, "/sandboxes/namespace"),
        ({"sandboxes": {"pools": {"base": "many"}}}, "/sandboxes/pools/base"),
        ({"store": {"persistence": {"size": "big"}}}, "/store/persistence/size"),
        ({"image": {"tag": ""}}, "/image/tag"),
        ({"sandboxes": {"limitRange": [{"max": {"memory": "8Gi"}}]}}, "/sandboxes/limitRange/0"),
    ],
)
def test_values_that_do_not_fit_are_named(values: Mapping[str, Any], said: str) -> None:
    done = _helm("template", "one", str(CHART), values=values)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_gateway_takes_calls_once_it_can_ask_the_store_and_is_not_stopped_where_it_later_cannot() -> None:
    pods = dict(_pods(_render({})))
    (container,) = pods["one-sandmesh-gateway"]["spec"]["containers"]
    *_, path = container["startupProbe"]["exec"]["command"]
    service, _, method = path.strip("/").partition("/")
    found = sandbox_pb2.DESCRIPTOR.services_by_name[service.rpartition(".")[2]].methods_by_name[method]
    assert found.containing_service.full_name == service
    assert found.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
    assert "exec" not in container["readinessProbe"]
    assert "exec" not in container["livenessProbe"]


def test_the_store_s_server_is_what_its_pod_tells_to_end() -> None:
    (container,) = dict(_pods(_render({})))["one-sandmesh-store"]["spec"]["containers"]
    (script,) = container["args"]
    assert script.startswith("exec redis-server - ")
    assert "requirepass $PASSWORD" in script
