"""Sandboxes in each posture, and what pods show of a cluster: a claim that they contradict is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.conformance import Requirement, Subject
from sandmeshd.drivers.conformance.inside import evaluate, run
from sandmeshd.drivers.conformance.requirements import calls, files, isolation, lifecycle, networks, watch
from sandmeshd.drivers.conformance.sandbox_end import end_of
from sandmeshd.drivers.kubernetes.names import object_name
from sandmeshd.drivers.kubernetes.pods.pod import AGENT_PORT
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.kubernetes.templates import CLASSES
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import NAMESPACE, Cluster
from tests.conformance.admission import pod_security
from tests.conformance.clusters import AT_ONCE, check_apart, direct, leftovers, settings_of, subject_of
from tests.conformance.network_plugin import network_plugin

pytestmark = [pytest.mark.needs("root", "docker", "kubernetes"), pytest.mark.timeout(900)]

REQUIREMENTS: tuple[Requirement, ...] = (
    lifecycle.the_driver_says_what_it_is,
    lifecycle.a_created_sandbox_runs_commands,
    lifecycle.a_repeated_create_gives_the_same_sandbox,
    lifecycle.a_deleted_sandbox_leaves_nothing,
    lifecycle.sandboxes_outlive_their_driver_and_are_adopted,
    lifecycle.a_new_token_shuts_out_lower_ones,
    calls.a_process_reads_its_input_to_the_end,
    calls.a_process_has_a_terminal_of_its_own,
    files.names_of_files_are_bytes,
    networks.a_named_host_is_reached_and_no_other,
    watch.a_watch_tells_of_creates_and_deletes,
    isolation.no_process_has_host_uid_0,
    isolation.user_code_has_no_privileges,
    isolation.neighbours_do_not_see_one_another,
)

OUTSIDE = """
import json, socket
found = {}
for host, port in %s:
    try:
        socket.create_connection((host, port), 2).close()
    except OSError as error:
        found[f"{host}:{port}"] = "shut"
    else:
        found[f"{host}:{port}"] = "open"
print(json.dumps(found))
"""

INSIDE = """
import json
def refused(path, mode):
    try:
        open(path, mode).close()
    except OSError:
        return True
    return False
paths = ("/proc/1/mem", "/proc/1/environ", "/run/sandmesh-born/config")
print(json.dumps([path for path in paths if not refused(path, "rb")]))
"""

METADATA = ("169.254.169.254", 80)

Posture = Literal["full", "baseline", "restricted"]


@asynccontextmanager
async def within(
    cluster: Cluster, paths: MeshPaths, posture: Posture
) -> AsyncGenerator[tuple[KubernetesSettings, Subject]]:
    """Yield a driver's settings in a posture, and it.

    For a lower one the namespace admits no other meanwhile, and policies are enforced.
    """
    settings = settings_of(cluster, paths).model_copy(update={"posture": posture})
    async with AsyncExitStack() as stack:
        if posture != "full":
            await stack.enter_async_context(pod_security(cluster, posture))
            await stack.enter_async_context(network_plugin(cluster))
        yield settings, subject_of(cluster, settings, direct(settings))


@pytest.mark.parametrize("posture", ["baseline", "restricted"])
async def test_pods_that_pod_security_admits_are_sandboxes(
    cluster: Cluster, paths: MeshPaths, posture: Posture
) -> None:
    room = asyncio.Semaphore(AT_ONCE)
    async with within(cluster, paths, posture), asyncio.TaskGroup() as checks:
        for requirement in REQUIREMENTS:
            checks.create_task(check_apart(cluster, requirement, direct, room, posture=posture))


async def _shut(sandbox: pb.RuntimeSandbox, hosts: list[tuple[str, int]]) -> None:
    """Check that user code reaches none of some hosts, once the network plugin has come to its pod."""
    seen: dict[str, str] = {"": "open"}
    async with asyncio.timeout(60):
        while set(seen.values()) != {"shut"}:
            seen = await evaluate(sandbox, OUTSIDE % hosts)


@asynccontextmanager
async def _services_at(address: str) -> AsyncGenerator[tuple[str, int]]:
    """Answer at an address of the machine, as its API server does on other clusters, and the services of a mesh."""
    async with await asyncio.start_server(lambda _, writer: writer.close(), address, 0) as server:
        yield server.sockets[0].getsockname()


async def _answers(place: tuple[str, int]) -> None:
    """Check that somebody answers at a place, so that it is the sandbox which does not come there."""
    _, writer = await asyncio.open_connection(*place)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("posture", ["full", "baseline", "restricted"])
async def test_user_code_reaches_neither_the_machine_nor_services_on_it_nor_metadata_nor_other_pods(
    cluster: Cluster, paths: MeshPaths, posture: Posture
) -> None:
    machine = (await asyncio.to_thread(cluster.request, "GET", "/api/v1/nodes"))["items"][0]["status"]
    address = str(machine["addresses"][0]["address"])
    kubelet = (address, int(machine["daemonEndpoints"]["kubeletEndpoint"]["Port"]))
    async with (
        _services_at(address) as services,
        within(cluster, paths, posture) as (settings, subject),
        direct(settings)() as driver,
    ):
        async with subject.sandbox(driver) as one, subject.sandbox(driver) as two:
            name = object_name(paths.mesh_id, two.sandbox_id)
            other = await asyncio.to_thread(cluster.request, "GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
            hosts = [kubelet, services, (str(other["status"]["podIP"]), AGENT_PORT)]
            for place in hosts:
                await _answers(place)
            await _shut(one, [*hosts, METADATA])
            wall = "routing rule in its namespace" if posture == "full" else "NetworkPolicy, tried by a pod"
            assert wall in one.enforced["network"]
            assert await evaluate(one, INSIDE) == []
        info = await driver.get_info(pb.GetInfoRequest())
        assert info.capabilities.separate_user == (posture != "restricted")


async def test_code_that_kills_all_it_can_ends_no_other_sandbox_than_its_own(
    cluster: Cluster, paths: MeshPaths
) -> None:
    async with (
        within(cluster, paths, "restricted") as (settings, subject),
        direct(settings)() as driver,
        subject.sandbox(driver) as one,
        subject.sandbox(driver) as two,
    ):
        found = await run(one, "cat /proc/*/environ /proc/*/cmdline 2>/dev/null; find /run")
        assert one.agent_token not in found.stdout
        # With one uid for all, what starts its processes is in its reach: the sandbox ends, and that is told.
        async with end_of(driver, subject, one.sandbox_id):
            await asyncio.gather(run(one, "kill -9 1; kill -9 -1"), return_exceptions=True)
        assert (await run(two, "echo here")).stdout == "here\n"


async def _opened(settings: KubernetesSettings) -> pb.GetInfoResponse:
    async with direct(settings)() as driver:
        return await driver.get_info(pb.GetInfoRequest())


async def test_claims_that_pods_contradict_are_refused_and_what_they_show_is_reported(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    for claim, why in {
        "network-policy": "the network plugin enforces none",
        # This API server is older than the field and drops it.
        "user-namespaces": "runs in the machine's own user namespace",
    }.items():
        with pytest.raises(RuntimeUnavailable, match=f"{why}: take '{claim}' out of SANDMESH_KUBERNETES_DECLARED"):
            await _opened(settings.model_copy(update={"declared": (claim,)}))
    with pytest.raises(RuntimeUnavailable, match="enforces none: use a network plugin that"):
        await _opened(settings.model_copy(update={"posture": "baseline"}))
    info = await _opened(settings.model_copy(update={"declared": ("single-process-oom",)}))
    assert info.capabilities.limits["memory"].endswith("ends the process that exceeds it (tried by a pod)")
    assert "pids" not in info.capabilities.limits
    canaries = [name for name in cluster.names("pods") if "canary" in name]
    assert canaries == []


@asynccontextmanager
async def _runtime_class(cluster: Cluster, name: str) -> AsyncGenerator[None]:
    body: dict[str, Any] = {"metadata": {"name": name}, "handler": "docker"}
    await asyncio.to_thread(cluster.request, "POST", CLASSES, body)
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.request, "DELETE", f"{CLASSES}/{name}")


async def test_a_runtime_class_whose_pods_see_the_machines_own_kernel_is_no_sandbox_of_gvisor_or_kata(
    cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths)
    for name, whose in {"gvisor": "gVisor's", "kata-fc": "a virtual machine's own"}.items():
        async with _runtime_class(cluster, name):
            with pytest.raises(RuntimeUnavailable, match=rf"{name} see the kernel Linux .*, which is not {whose}"):
                await _opened(settings.model_copy(update={"runtime_class": name}))
    async with _runtime_class(cluster, "plain"):
        own = settings.model_copy(update={"runtime_class": "plain"})
        subject = subject_of(cluster, own, direct(own))
        async with direct(own)() as driver, subject.sandbox(driver) as sandbox:
            assert sandbox.enforced["kernel"].startswith("Linux ")
            assert (await driver.get_info(pb.GetInfoRequest())).capabilities.isolation == "namespaces"
    assert leftovers(cluster, paths.mesh_id) == set()
