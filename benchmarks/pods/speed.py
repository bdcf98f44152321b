"""`python -m benchmarks.pods.speed`: pods of a real cluster beside the docker driver's containers, in turns.

Needs root, what the docker driver's tests need, etcd, and the programs that scripts/kubernetes_build.sh builds. When a
pod is Ready the API server's own watch tells, in a thread of this program.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.cluster import NAMESPACE, TOKEN, Cluster, own_cluster

from benchmarks import report
from benchmarks.figures import Figure, box_of, spread, timed
from benchmarks.meshes import RunningMesh, pool_is_full, running_mesh
from benchmarks.warm import Warm
from benchmarks.yardstick import empty_calls
from sandmesh import BaseSandboxAsync

COUNT, CALLS = 20, 25
POOL, ROUNDS = 4, 15
SETTLE_SECONDS = 4.0
"""In which a pooled agent imports what its first call needs."""


class ReadyTimes:
    """When each pod was reported to be Ready, by its name."""

    def __init__(self, cluster: Cluster) -> None:
        self.times: dict[str, float] = {}
        self._cluster = cluster
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        url = f"{self._cluster.url}/api/v1/namespaces/{NAMESPACE}/pods?watch=true"
        tls = ssl.create_default_context(cafile=str(self._cluster.folder / "ca.pem"))
        wanted = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310 - of the benchmark
        plain = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
        with plain.open(wanted) as events:
            for line in events:
                now, pod = time.perf_counter(), json.loads(line)["object"]
                if any(
                    condition["type"] == "Ready" and condition["status"] == "True" for condition in _conditions(pod)
                ):
                    self.times.setdefault(pod["metadata"]["name"], now)


def _conditions(pod: Mapping[str, Any]) -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = pod.get("status", {}).get("conditions") or []
    return found


class Samples:
    """What was measured on one driver."""

    def __init__(self) -> None:
        self.slept, self.row = Warm(), Warm()
        self.cold: list[float] = []
        self.cells: list[float] = []
        self.commands: list[float] = []

    def figures(self, driver: str) -> list[Figure]:
        """Return the lines of a driver."""
        return [
            Figure(f"{driver}: pooled create -> first Python result, one after another", spread(self.row.both)),
            Figure(f"{driver}: the same after a pause of {SETTLE_SECONDS:g} s", spread(self.slept.both)),
            Figure(f"{driver}: cold create -> first Python result", spread(self.cold)),
            Figure(f'{driver}: run_ipython_cell("1+1")', spread(self.cells)),
            Figure(f'{driver}: run_shell_command("true")', spread(self.commands)),
        ]


async def measure(cluster: Cluster) -> list[Figure]:
    """Measure both drivers in turns."""
    own = {"SANDMESH_DRIVER": "kubernetes", "SANDMESH_KUBERNETES_KUBECONFIG": str(cluster.kubeconfig)}
    pods = {**own, "SANDMESH_KUBERNETES_REACH": "pods"}
    containers = {"SANDMESH_DRIVER": "docker", "SANDMESH_DOCKER_URL": cluster.engine}
    ready = ReadyTimes(cluster)
    found = {"kubernetes": Samples(), "docker": Samples()}
    nothing: list[float] = []
    late: list[float] = []
    async with running_mesh({}, environment=pods) as first, running_mesh({}, environment=containers) as second:
        meshes = {"kubernetes": first, "docker": second}
        for name, mesh in meshes.items():
            async with _box(mesh):
                pass
            for _ in range(COUNT // 2):
                seconds, after = await _cold(mesh, ready)
                found[name].cold.append(seconds)
                late += [after] if name == "kubernetes" else []
        async with _box(first) as one, _box(second) as two, empty_calls() as empty:
            for turn in range(COUNT + 1):
                for name, box in (("kubernetes", one), ("docker", two)):
                    cells = [await timed(box.run_ipython_cell("1+1")) for _ in range(CALLS)]
                    commands = [await timed(box.run_shell_command("true")) for _ in range(CALLS // 5)]
                    # The first are slower.
                    found[name].cells += cells if turn else []
                    found[name].commands += commands if turn else []
                nothing += [await timed(empty()) for _ in range(CALLS)]
    async with (
        running_mesh({"base": POOL}, environment=pods) as first,
        running_mesh({"base": POOL}, environment=containers) as second,
    ):
        for turn in range(ROUNDS + 1):
            for name, mesh in (("kubernetes", first), ("docker", second)):
                await _pooled(mesh, found[name] if turn else Samples())
    ratio = statistics.median(found["kubernetes"].cells) / statistics.median(found["docker"].cells)
    return [
        *(line for name, one in found.items() for line in one.figures(name)),
        Figure("an empty gRPC call, in turns", spread(nothing)),
        Figure("a cell on kubernetes, of docker's", f"{ratio:.2f} times", "1.3 times"),
        Figure("pooled create on kubernetes", spread(found["kubernetes"].row.both), "15 ms"),
        Figure("cold create returns after its pod is Ready", spread(late), "300 ms"),
    ]


@asynccontextmanager
async def _box(mesh: RunningMesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with box_of(mesh) as box:
        await box.run_ipython_cell("1+1")
        await box.run_shell_command("true")
        yield box


async def _pooled(mesh: RunningMesh, found: Samples) -> None:
    """Take all but one of a pool: the first after a pause, the others right after it."""
    async with box_of(mesh):  # the connection is not what is measured
        await pool_is_full(mesh, "base", POOL)
        await asyncio.sleep(SETTLE_SECONDS)
        boxes = [box_of(mesh) for _ in range(POOL - 1)]
        await found.slept.take(boxes[0])
        for box in boxes[1:]:
            await found.row.take(box)
        await asyncio.gather(*(box.close() for box in boxes))


async def _cold(mesh: RunningMesh, ready: ReadyTimes) -> tuple[float, float]:
    """Return the seconds of a create to its first result, and those of its return after the pod was Ready."""
    before = set(ready.times)
    box = box_of(mesh)
    started = time.perf_counter()
    await box.start()
    returned = time.perf_counter()
    await box.run_ipython_cell("1+1")
    seconds = time.perf_counter() - started
    # The watch may tell of it later than the mesh heard of it.
    await asyncio.sleep(1.0)
    await box.close()
    new = [moment for name, moment in ready.times.items() if name not in before]
    return seconds, returned - max(new, default=returned)


def main() -> None:
    """Run it and print a table."""
    options = report.arguments("benchmarks.pods.speed", __doc__).parse_args()
    before = report.machine()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, own_cluster(Path(folder)) as cluster:
        found = asyncio.run(measure(cluster))
    report.show(found, before, as_markdown=options.markdown)


if __name__ == "__main__":
    main()
