"""`python -m benchmarks.pods [--pods 2000]`: what the kubernetes driver asks of an API server, and what it takes.

Needs root, etcd, and the programs that scripts/kubernetes_build.sh builds. The API server, its store, the scheduler and
the controllers are real; the machine and the agents of its pods are stand-ins in a process of their own.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog
import uvloop
from tests.cluster import WATCHED, WATCHED_TOKEN, Cluster, control_plane

from benchmarks import report
from benchmarks.figures import Figure
from benchmarks.pods.machine import NAME
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths

MESH = "pods"
NETWORKS = {"none": sandbox_pb2.NETWORK_MODE_NONE, "public": sandbox_pb2.NETWORK_MODE_PUBLIC}


async def measure(cluster: Cluster, folder: Path, pods: int, at_once: int, network: str) -> list[Figure]:
    """Create, lease and delete sandboxes, and return the figures."""
    cluster.write_kubeconfig(folder / "watched", WATCHED_TOKEN)
    _add_machine(cluster, pods)
    command = [sys.executable, "-m", "benchmarks.pods.machine", str(cluster.kubeconfig)]
    machine = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        if machine.stdout is None or await machine.stdout.readline() != b"ready\n":
            raise RuntimeError("the stand-in for a machine did not start")
        paths = MeshPaths(MESH, folder / "state", folder / "run")
        paths.make()
        settings = KubernetesSettings(paths=paths, kubeconfig=folder / "watched", reach="pods")
        before = _resident()
        async with open_plugin("kubernetes", settings) as driver:
            opened, asked = _resident(), len(cluster.audit(WATCHED))
            found = await _lives(driver, pods, at_once, network)
            requests = Counter(cluster.audit(WATCHED)[asked:])
        kept = {name: number for name, number in requests.items() if "leases" not in name[1] and name[0] != "watch"}
        return [
            Figure(f"{pods:,} pods, {at_once} at once, network {network}", ""),
            *found,
            Figure("  requests to the API server for a sandbox's life", f"{sum(kept.values()) / pods:.2f}"),
            *(Figure(f"    {verb} {kind}", f"{number / pods:.2f}") for (verb, kind), number in sorted(kept.items())),
            Figure("  memory of the driver", f"{opened:.0f} MiB when it opened ({before:.0f} MiB before)"),
            Figure("  memory with all pods, at most", f"{_most_resident():.0f} MiB"),
        ]
    finally:
        machine.terminate()
        await machine.wait()


async def _lives(driver: Driver, pods: int, at_once: int, network: str) -> list[Figure]:
    grant = sandbox_pb2.NetworkGrant(mode=NETWORKS[network])
    names = [f"one-{number}" for number in range(pods)]

    async def create(name: str) -> None:
        spec = sandbox_pb2.SandboxSpec(template="base", network=grant)
        await driver.create_sandbox(pb.CreateSandboxRequest(sandbox_id=name, mesh_id=MESH, spec=spec, fencing_token=1))

    async def lease(name: str) -> None:
        await driver.install_token(pb.InstallTokenRequest(sandbox_id=name, fencing_token=2))

    async def delete(name: str) -> None:
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))

    creates = await _timed("  create", create, names, at_once)
    listed = (await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=MESH))).sandboxes
    if len({sandbox.endpoint for sandbox in listed}) != pods:
        raise RuntimeError("sandboxes are missing, or were handed out twice")
    leases = await _timed("  lease", lease, names, at_once)
    return [creates, leases, await _timed("  delete", delete, names, at_once)]


async def _timed(title: str, act: Callable[[str], Awaitable[None]], names: list[str], at_once: int) -> Figure:
    room = asyncio.Semaphore(at_once)
    took: list[float] = []

    async def one(name: str) -> None:
        async with room:
            begun = time.perf_counter()
            await act(name)
            took.append((time.perf_counter() - begun) * 1000)

    begun = time.perf_counter()
    await asyncio.gather(*map(one, names))
    whole = time.perf_counter() - begun
    took.sort()
    half, last = took[len(took) // 2], took[int(len(took) * 0.99)]
    return Figure(title, f"p50 {half:.0f} ms, p99 {last:.0f} ms, {len(took) / whole:.0f}/s")


def _add_machine(cluster: Cluster, pods: int) -> None:
    room = {"cpu": "10000", "memory": "100Ti", "pods": str(2 * pods)}
    cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": NAME}})
    status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": room, "allocatable": room}
    cluster.request("PATCH", f"/api/v1/nodes/{NAME}/status", {"status": status})
    # Without a kubelet's heartbeats it would be taken for lost: its pods stay, and others still come.
    cluster.request("PATCH", f"/api/v1/nodes/{NAME}", {"spec": {"taints": None}})


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _most_resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run the measurement and print its table."""
    parser = report.arguments("benchmarks.pods", __doc__)
    parser.add_argument("--pods", type=int, default=2000, help="sandboxes that are there at once")
    parser.add_argument("--at-once", type=int, default=50, help="creates and deletes that are open at once")
    parser.add_argument(
        "--network",
        choices=NETWORKS,
        default="none",
        help="what sandboxes reach; for any but none the driver has a link to each",
    )
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    before = report.machine()
    with tempfile.TemporaryDirectory(prefix="pods-", dir="/tmp") as folder:
        (Path(folder) / "cluster").mkdir()
        with control_plane(Path(folder) / "cluster") as cluster:
            found = uvloop.run(measure(cluster, Path(folder), chosen.pods, chosen.at_once, chosen.network))
    report.show(found, before, as_markdown=chosen.markdown)


if __name__ == "__main__":
    main()
