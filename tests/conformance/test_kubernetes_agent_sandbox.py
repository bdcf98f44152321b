"""Sandboxes as claims on a warm pool of agent-sandbox, whose controller is a stand-in of the tests' own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, RuntimeUnavailable, SandboxStartFailed
from sandmeshd.drivers.conformance import Requirement
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.conformance.requirements import calls, lifecycle, limits, networks, refusals
from sandmeshd.drivers.conformance.sandbox_end import end_of
from sandmeshd.drivers.kubernetes.agent_sandbox.pools import arguments, certificate_pin
from sandmeshd.drivers.kubernetes.cluster.rights import needed_rights
from sandmeshd.drivers.kubernetes.names import object_name, selector
from sandmeshd.drivers.kubernetes.pods.pod import pod
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.node.identity import new_identity
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import NAMESPACE, USER_TOKEN, Cluster
from tests.conformance.agent_sandbox import LABEL, PODS, Controller, agent_sandbox, place, request
from tests.conformance.clusters import direct, leftovers, processes, settings_of, subject_of
from tests.environments import environment_of

pytestmark = [pytest.mark.needs("root", "docker", "kubernetes"), pytest.mark.timeout(600)]

ROLES = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"

REQUIREMENTS: tuple[Requirement, ...] = (
    lifecycle.the_driver_says_what_it_is,
    lifecycle.user_code_sees_the_stated_environment_variables,
    lifecycle.a_repeated_create_gives_the_same_sandbox,
    lifecycle.a_deleted_sandbox_leaves_nothing,
    lifecycle.sandboxes_outlive_their_driver_and_are_adopted,
    lifecycle.a_new_token_shuts_out_lower_ones,
    lifecycle.logs_are_given_while_the_sandbox_is_there,
    refusals.limits_that_cannot_be_enforced_are_refused_by_name,
    limits.limits_that_are_reported_are_accepted_together,
    calls.a_process_reads_its_input_to_the_end,
    networks.a_named_host_is_reached_and_no_other,
)


def template_spec(settings: KubernetesSettings, pin: str) -> dict[str, Any]:
    """Return what an operator writes: the driver's own pod, whose agent waits instead of being configured."""
    spec = pod(settings, "template", sandbox_pb2.SandboxSpec(template="base"), "sandmesh/base:latest", "")["spec"]
    container = spec["containers"][0]
    container["args"] = arguments(pin)
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != "born"]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != "born"]
    return {"podTemplate": {"spec": spec}, "networkPolicy": {"egress": []}}


@pytest.fixture
def settings(cluster: Cluster, paths: MeshPaths, tmp_path: Path) -> Generator[KubernetesSettings]:
    """Return the settings of a driver with a certificate of its mesh's own, whose user has the rights it asks for."""
    file, kubeconfig = tmp_path / "birth.pem", tmp_path / "kubeconfig"
    file.write_bytes(new_identity().pem)
    cluster.write_kubeconfig(kubeconfig, USER_TOKEN)
    own = {"warm_pools": {"base": "python"}, "birth_identity": file, "kubeconfig": kubeconfig}
    found = settings_of(cluster, paths).model_copy(update=own)
    rules = [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": right.verbs}
        for right in needed_rights(found, forwards=True)
    ]
    cluster.request("POST", f"{ROLES}/roles", {"metadata": {"name": "claims"}, "rules": rules})
    bound = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "claims"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}],
    }
    cluster.request("POST", f"{ROLES}/rolebindings", {"metadata": {"name": "claims"}, **bound})
    yield found
    for kind in ("rolebindings", "roles"):
        cluster.request("DELETE", f"{ROLES}/{kind}/claims")


@pytest.fixture
async def controller(cluster: Cluster, settings: KubernetesSettings) -> AsyncGenerator[Controller]:
    """Run the controller, with one pod in the pool."""
    assert settings.birth_identity is not None
    pin = certificate_pin(settings.birth_identity.read_text())
    async with agent_sandbox(cluster, template_spec(settings, pin), 1) as running:
        yield running


async def test_claims_on_a_warm_pool_are_sandboxes(
    cluster: Cluster, settings: KubernetesSettings, controller: Controller
) -> None:
    def of_its_pod(sandbox_id: str) -> list[int]:
        claim = cluster.request("GET", place("sandboxclaims", object_name(subject.mesh_id, sandbox_id)))
        return processes(cluster, claim["status"]["sandbox"]["name"])

    subject = subject_of(cluster, settings, direct(settings))
    subject = replace(subject, boundary=replace(subject.boundary, processes=of_its_pod))
    for requirement in REQUIREMENTS:
        await requirement(subject)
    claims = await request(cluster, "GET", f"{place('sandboxclaims')}?labelSelector={selector(subject.mesh_id)}")
    assert claims["items"] == []
    # With a claim its pod is gone: those that are left wait for another.
    pods = await request(cluster, "GET", f"{PODS}?labelSelector={LABEL}")
    assert pods["items"] == []
    assert leftovers(cluster, subject.mesh_id) == set()


async def test_what_a_claim_is_refused_with_ends_its_create_and_leaves_nothing(
    cluster: Cluster, settings: KubernetesSettings, controller: Controller
) -> None:
    subject = subject_of(cluster, settings, direct(settings))
    async with direct(settings)() as driver:
        controller.refusal = "WarmPoolNotFound"
        with pytest.raises(SandboxStartFailed, match="WarmPoolNotFound: refused by the tests"):
            await driver.create_sandbox(subject.request())
        controller.refusal = ""
        with pytest.raises(CapabilityMissing, match="memory"):
            await driver.create_sandbox(subject.request(limits=sandbox_pb2.Limits(memory_bytes=1 << 30)))
        missing = subject.request()
        missing.spec.template = "filesystem"
        with pytest.raises(CapabilityMissing, match=r"'filesystem' has no warm pool.*SANDMESH_KUBERNETES_WARM_POOLS"):
            await driver.create_sandbox(missing)
    assert leftovers(cluster, subject.mesh_id) == set()


@pytest.mark.parametrize(("what", "reach"), [("claim", "pods"), ("pod", "port-forward")])
async def test_whose_claim_is_gone_or_pod_was_made_anew_is_a_sandbox_that_ended(
    cluster: Cluster, settings: KubernetesSettings, controller: Controller, what: str, reach: str
) -> None:
    settings = settings.model_copy(update={"reach": reach})
    subject = subject_of(cluster, settings, direct(settings))
    async with direct(settings)() as driver, subject.sandbox(driver) as sandbox:
        assert (await run(sandbox, "echo here")).stdout == "here\n"
        async with end_of(driver, subject, sandbox.sandbox_id):
            claims = await request(cluster, "GET", place("sandboxclaims"))
            claim = claims["items"][0]
            own = f"{PODS}/{claim['status']['sandbox']['name']}"
            path = (
                place("sandboxclaims", claim["metadata"]["name"]) if what == "claim" else f"{own}?gracePeriodSeconds=0"
            )
            await request(cluster, "DELETE", path)


async def test_templates_that_would_not_fit_are_refused_at_the_start_with_what_to_write(
    cluster: Cluster, settings: KubernetesSettings, controller: Controller
) -> None:
    async def refused(spec: dict[str, Any], words: str) -> None:
        await request(cluster, "PATCH", place("sandboxtemplates", "python"), {"spec": spec})
        with pytest.raises(RuntimeUnavailable, match=words):
            async with direct(settings)():
                pass

    await refused({"networkPolicy": None}, r"SandboxTemplate python .*: set networkPolicy to egress: \[\]")
    other = settings.model_copy(update={"warm_pools": {"base": "none"}})
    with pytest.raises(RuntimeUnavailable, match="there is no sandboxwarmpools none"):
        async with direct(other)():
            pass
    pods = template_spec(settings, "00")["podTemplate"]
    await refused({"networkPolicy": {"egress": []}, "podTemplate": pods}, "set the args of its first container to")
    without = settings.model_copy(update={"birth_identity": None})
    with pytest.raises(RuntimeUnavailable, match="SANDMESH_KUBERNETES_BIRTH_IDENTITY"):
        async with direct(without)():
            pass


CLIENT = "k8s-agent-sandbox==1.0.8"
SEES = """
import json, sys
from k8s_agent_sandbox import SandboxClient

namespace, claim = sys.argv[1:]
client = SandboxClient()
found = {"listed": claim in client.list_all_sandboxes(namespace)}
found["pool"] = client.get_sandbox_claim_warmpool_name(claim, namespace)
adopted = client.create_sandbox("python", namespace, 60, claim_name=claim, adopt_existing=True)
found["ready"] = client.k8s_helper.wait_for_claim_ready(claim, namespace, 60)
found["same"] = client.get_sandbox(claim, namespace).sandbox_id == adopted.sandbox_id == found["ready"]
found["address"], (found["status"], _) = adopted.get_pod_ip(), adopted.status()
own = client.create_sandbox("python", namespace, 120)
found["beside"] = own.sandbox_id != adopted.sandbox_id
name = own.claim_name
client.delete_sandbox(name, namespace)
found["deleted"] = name not in client.list_all_sandboxes(namespace)
print(json.dumps(found))
"""


async def test_the_projects_own_client_sees_a_claim_of_ours_as_its_own_and_has_others_beside_it(
    cluster: Cluster, settings: KubernetesSettings, controller: Controller
) -> None:
    subject = subject_of(cluster, settings, direct(settings))
    python = await asyncio.to_thread(environment_of, CLIENT, with_own=False)
    variables = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    async with direct(settings)() as driver, subject.sandbox(driver) as sandbox:
        claim = object_name(subject.mesh_id, sandbox.sandbox_id)
        program = await asyncio.create_subprocess_exec(
            *(str(python), "-c", SEES, NAMESPACE, claim),
            env={**variables, "KUBECONFIG": str(cluster.kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, failed = await program.communicate()
        assert program.returncode == 0, failed.decode()
        seen = json.loads(output.splitlines()[-1])
        found = await request(cluster, "GET", place("sandboxclaims", claim))
        assert seen.pop("ready") == found["status"]["sandbox"]["name"]
        assert seen.pop("address") == found["status"]["sandbox"]["podIPs"][0]
        assert seen.pop("pool") == "python"
        assert seen.pop("status") == "SandboxReady"
        assert seen == dict.fromkeys(("listed", "same", "beside", "deleted"), True)
        # What others claim is no sandbox of the mesh, whose own goes on.
        listed = await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=subject.mesh_id))
        assert [one.sandbox_id for one in listed.sandboxes] == [sandbox.sandbox_id]
        assert (await run(sandbox, "echo here")).stdout == "here\n"
    assert leftovers(cluster, subject.mesh_id) == set()
