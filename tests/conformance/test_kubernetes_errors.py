"""What a cluster refuses, and what happens to its pods and its API server: said by name, with what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import PoolExhausted, RuntimeUnavailable, SandboxStartFailed
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.conformance.sandbox_end import end_of, watched
from sandmeshd.drivers.kubernetes.cluster.rights import needed_rights
from sandmeshd.drivers.kubernetes.names import object_name, selector
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import NAMESPACE, USER_TOKEN, Cluster
from tests.conformance.admission import pod_security
from tests.conformance.clusters import direct, leftovers, settings_of, subject_of

pytestmark = [pytest.mark.needs("root", "docker", "kubernetes"), pytest.mark.timeout(600)]

NOTICE_SECONDS = 120.0


async def _opened(settings: KubernetesSettings) -> None:
    async with direct(settings)():
        pass


async def test_a_namespace_that_is_not_there_is_named_with_the_command_that_makes_it(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths).model_copy(update={"kubernetes_namespace": "nowhere"})
    with pytest.raises(RuntimeUnavailable, match="kubectl create namespace nowhere"):
        await _opened(settings)


async def test_credentials_that_are_wrong_or_may_too_little_are_told_apart(
    cluster: Cluster, paths: MeshPaths, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    settings = settings_of(cluster, paths).model_copy(update={"kubeconfig": file})
    cluster.write_kubeconfig(file, "expired")
    with pytest.raises(RuntimeUnavailable, match="does not accept the credentials"):
        await _opened(settings)
    cluster.write_kubeconfig(file, USER_TOKEN)
    with pytest.raises(RuntimeUnavailable, match=r"lacks rights \(Role pods: get, list, .*; .*: add"):
        await _opened(settings)


async def test_a_verb_that_a_role_lacks_is_named_with_the_rule_that_grants_it(
    cluster: Cluster, paths: MeshPaths, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    settings = settings_of(cluster, paths).model_copy(update={"kubeconfig": file})
    cluster.write_kubeconfig(file, USER_TOKEN)
    rules = [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": [v for v in right.verbs if v != "watch"]}
        for right in needed_rights(settings, forwards=False)
    ]
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/"
    who = {"kind": "User", "name": "nobody", "apiGroup": "rbac.authorization.k8s.io"}
    what = {"kind": "Role", "name": "some", "apiGroup": "rbac.authorization.k8s.io"}
    await _request(cluster, "POST", f"{roles}roles", {"metadata": {"name": "some"}, "rules": rules})
    binding = {"metadata": {"name": "some"}, "subjects": [who], "roleRef": what}
    await _request(cluster, "POST", f"{roles}rolebindings", binding)
    try:
        with pytest.raises(RuntimeUnavailable, match=r"\(Role pods: watch\)") as refused:
            await _opened(settings)
        assert 'Role: {apiGroups: [""], resources: [pods], verbs: [watch]}' in refused.value.facts["fix"]
    finally:
        await _request(cluster, "DELETE", f"{roles}rolebindings/some")
        await _request(cluster, "DELETE", f"{roles}roles/some")


async def test_a_namespace_that_admits_only_a_lower_posture_is_refused_and_says_which(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    for level in ("baseline", "restricted"):
        async with pod_security(cluster, level):
            with pytest.raises(
                RuntimeUnavailable, match=rf"NET_ADMIN.*; it admits {level} ones.*: set .*_POSTURE={level}, or"
            ):
                await _opened(settings)
    assert leftovers(cluster, paths.mesh_id) == set()
    assert cluster.names("networkpolicies", selector(paths.mesh_id), "/apis/networking.k8s.io/v1") == []


async def test_a_namespace_that_is_being_deleted_is_named_with_what_to_do(cluster: Cluster, paths: MeshPaths) -> None:
    settings = settings_of(cluster, paths).model_copy(update={"kubernetes_namespace": "going"})
    kept = {"metadata": {"name": "kept", "finalizers": ["sandmesh.test/kept"]}}
    await _request(cluster, "POST", "/api/v1/namespaces", {"metadata": {"name": "going"}})
    await _request(cluster, "POST", "/api/v1/namespaces/going/configmaps", kept)
    await _request(cluster, "DELETE", "/api/v1/namespaces/going")
    try:
        with pytest.raises(RuntimeUnavailable, match="the namespace going is being deleted: wait until it is gone"):
            await _opened(settings)
    finally:
        free = {"metadata": {"finalizers": None}}
        await _request(cluster, "PATCH", "/api/v1/namespaces/going/configmaps/kept", free)


async def test_volumes_that_the_api_server_does_not_know_are_refused_with_what_to_set(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths).model_copy(update={"workspace": "volume"})
    with pytest.raises(RuntimeUnavailable, match=r"knows no volumes .*: set SANDMESH_KUBERNETES_WORKSPACE=disk"):
        await _opened(settings)


async def test_of_two_drivers_of_one_mesh_the_second_is_refused_until_the_first_has_gone(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    async with direct(settings)():
        with pytest.raises(RuntimeUnavailable, match=r"another driver of the mesh .* is active .*, process \d+"):
            await _opened(settings)
    await _opened(settings)


async def _request(cluster: Cluster, method: str, path: str, body: object = None) -> Any:
    return await asyncio.to_thread(cluster.request, method, path, body)


async def test_a_kubeconfig_that_is_missing_or_lacks_the_context_is_named(
    cluster: Cluster, paths: MeshPaths, tmp_path: Path
) -> None:
    settings = settings_of(cluster, paths)
    with pytest.raises(RuntimeUnavailable, match=r"there is no kubeconfig at .*SANDMESH_KUBERNETES_KUBECONFIG"):
        await _opened(settings.model_copy(update={"kubeconfig": tmp_path / "none"}))
    with pytest.raises(RuntimeUnavailable, match=r"cannot be used .*SANDMESH_KUBERNETES_CONTEXT"):
        await _opened(settings.model_copy(update={"context": "gone"}))


async def test_a_runtime_class_that_the_cluster_lacks_is_refused(cluster: Cluster, paths: MeshPaths) -> None:
    settings = settings_of(cluster, paths).model_copy(update={"runtime_class": "gvisor"})
    with pytest.raises(RuntimeUnavailable, match="the cluster has no RuntimeClass gvisor"):
        await _opened(settings)


async def test_a_proxy_of_the_environment_catches_no_request_to_the_api_server(
    cluster: Cluster, paths: MeshPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with direct(settings_of(cluster, paths))() as driver:
        info = await driver.get_info(pb.GetInfoRequest())
    assert info.name == "kubernetes"


async def test_a_quota_that_is_used_up_is_a_bound_and_leaves_nothing(cluster: Cluster, paths: MeshPaths) -> None:
    settings = settings_of(cluster, paths)
    subject = subject_of(cluster, settings, direct(settings))
    quotas = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await asyncio.to_thread(cluster.request, "POST", quotas, quota)
    try:
        async with direct(settings)() as driver:
            with pytest.raises(PoolExhausted, match="exceeded quota"):
                await driver.create_sandbox(subject.request())
    finally:
        await asyncio.to_thread(cluster.request, "DELETE", f"{quotas}/none")
    assert leftovers(cluster, paths.mesh_id) == set()


async def test_a_pod_that_no_machine_can_take_is_refused_with_the_schedulers_words_and_leaves_nothing(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths).model_copy(
        update={"node_selector": {"pool": "none"}, "schedule_timeout": 1.0}
    )
    async with direct(settings)() as driver:
        with pytest.raises(SandboxStartFailed, match=r"no machine could take it within 1 s: .*0/1 nodes are available"):
            await driver.create_sandbox(subject_of(cluster, settings, direct(settings)).request())
    assert leftovers(cluster, paths.mesh_id) == set()


async def test_a_pod_that_somebody_deletes_is_a_sandbox_that_ended_and_says_so(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    subject = subject_of(cluster, settings, direct(settings))
    async with direct(settings)() as driver, subject.sandbox(driver) as sandbox:
        pod = f"/api/v1/namespaces/{NAMESPACE}/pods/{object_name(paths.mesh_id, sandbox.sandbox_id)}"
        async with end_of(driver, subject, sandbox.sandbox_id):
            await asyncio.to_thread(cluster.request, "DELETE", pod)
        found = await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox.sandbox_id))
        assert found.sandbox.state == pb.RUNTIME_STATE_ENDED


async def test_an_api_server_that_is_killed_and_comes_back_costs_no_sandbox_and_ends_are_noticed_again(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    subject = subject_of(cluster, settings, direct(settings))
    async with direct(settings)() as driver, subject.sandbox(driver) as sandbox:
        await asyncio.to_thread(cluster.server.kill)
        try:
            assert (await run(sandbox, "echo here")).stdout == "here\n"
            with pytest.raises(RuntimeUnavailable, match=r"the API server at .* does not answer"):
                await driver.create_sandbox(subject.request())
        finally:
            await asyncio.to_thread(cluster.server.start)
            await asyncio.to_thread(cluster.wait_for_server)
        names = cluster.names("pods", selector(paths.mesh_id))
        assert names == [f"pods {object_name(paths.mesh_id, sandbox.sandbox_id)}"]
        pod = f"/api/v1/namespaces/{NAMESPACE}/pods/{object_name(paths.mesh_id, sandbox.sandbox_id)}"
        async with asyncio.timeout(NOTICE_SECONDS), watched(driver, paths.mesh_id) as changes:
            await asyncio.to_thread(cluster.request, "DELETE", pod)
            async for change in changes:
                if change.sandbox.state == pb.RUNTIME_STATE_ENDED:
                    break
        assert (await _run_again(driver, subject.request())) == "again\n"


async def _run_again(driver: Driver, request: pb.CreateSandboxRequest) -> str:
    """Create a sandbox, run a command in it, delete it, and return what it wrote."""
    made = (await driver.create_sandbox(request)).sandbox
    try:
        return (await run(made, "echo again")).stdout
    finally:
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=request.sandbox_id))
