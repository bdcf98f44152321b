"""The core of the conformance suite on the kubernetes driver, directly and over gRPC, on a cluster of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import pytest_asyncio

from sandmeshd.drivers.conformance import Requirement
from sandmeshd.drivers.conformance.requirements import calls, lifecycle, networks
from sandmeshd.drivers.conformance.suite import CORE
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import Cluster
from tests.conformance.clusters import AT_ONCE, Open, check_apart, direct, remote, settings_of, subject_of
from tests.engine import in_full

pytestmark = [
    pytest.mark.needs("root", "docker", "kubernetes"),
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

Way: TypeAlias = Callable[[KubernetesSettings], Open]

BY_THE_LINK: tuple[Requirement, ...] = (
    calls.a_process_reads_its_input_to_the_end,
    lifecycle.several_sandboxes_are_created_at_once,
    lifecycle.sandboxes_outlive_their_driver_and_are_adopted,
    lifecycle.a_new_token_shuts_out_lower_ones,
    networks.a_named_host_is_reached_and_no_other,
)
"""What depends on how agents are reached."""

SUITE = (*CORE, networks.a_named_host_is_reached_and_no_other, networks.a_changed_grant_holds_at_once)

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"
DEMO_SECONDS = 300.0
OURS = "app.kubernetes.io/managed-by=sandmesh"
LEASES = "/apis/coordination.k8s.io/v1"


# What holds behind gRPC holds of the driver itself.
WAYS = (direct, remote) if in_full() else (remote,)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def checks(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncGenerator[Mapping[str, asyncio.Task[None]]]:
    """Begin to check the requirements of the tests that were chosen; what is still under way ends with the tests."""
    room = asyncio.Semaphore(AT_ONCE)
    items = [item for item in request.session.items if item.path == request.path]
    chosen = [item for item in items if isinstance(item, pytest.Function)]
    params: dict[str, dict[str, Any]] = {
        item.name: item.callspec.params for item in chosen if item.originalname == test_conformance.__name__
    }
    started = {name: asyncio.create_task(check_apart(cluster, room=room, **each)) for name, each in params.items()}
    yield started
    for task in started.values():
        task.cancel()
    await asyncio.gather(*started.values(), return_exceptions=True)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("requirement", SUITE, ids=lambda requirement: requirement.__name__)
async def test_conformance(
    request: pytest.FixtureRequest, checks: Mapping[str, asyncio.Task[None]], way: Way, requirement: Requirement
) -> None:
    await checks[request.node.name]


@pytest.mark.parametrize("requirement", BY_THE_LINK, ids=lambda requirement: requirement.__name__)
async def test_agents_are_reached_through_the_api_server(
    requirement: Requirement, cluster: Cluster, paths: MeshPaths
) -> None:
    settings = settings_of(cluster, paths).model_copy(update={"reach": "port-forward"})
    await requirement(subject_of(cluster, settings, direct(settings)))
    assert not (paths.runtime / "f").exists()


async def test_the_demo_runs_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    own = {"SANDMESH_DRIVER": "kubernetes", "SANDMESH_KUBERNETES_KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, str(DEMO), str(tmp_path / "out")]
    demo = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **own}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(DEMO_SECONDS):
        printed, _ = await demo.communicate()
    assert demo.returncode == 0, printed.decode()
    assert (tmp_path / "out" / "co2.png").read_bytes().startswith(b"\x89PNG")
    # Its mesh ends after it.
    left = ["all"]
    async with asyncio.timeout(DEMO_SECONDS):
        while left:
            left = await asyncio.to_thread(cluster.names, "pods", OURS)
            left += await asyncio.to_thread(cluster.names, "secrets", OURS)
            left += await asyncio.to_thread(cluster.names, "leases", OURS, LEASES)
