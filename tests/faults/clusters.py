"""A node whose sandboxes are pods of a cluster of the tests' own, which is a thing to strike, too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.error import HTTPError

from sandmeshd.drivers.kubernetes.names import selector
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import NAMESPACE, NODE, Cluster
from tests.conformance.conftest import below
from tests.engine import query
from tests.faults.runtimes import Marked

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SANDBOX = {"io.kubernetes.docker.type": "container", "io.kubernetes.pod.namespace": NAMESPACE}


class Kubernetes(Marked):
    """The one driver of a mesh in a namespace, and its cluster with one machine."""

    name = "kubernetes"
    faults: Sequence[str] = ("pod deleted", "API server", "kubelet")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def environment(self) -> Mapping[str, str]:
        prefix = "SANDMESH_KUBERNETES_"
        return {f"{prefix}KUBECONFIG": str(self._cluster.kubeconfig), f"{prefix}REACH": "pods"}

    def inside(self) -> list[int]:
        """Return the processes of all pods."""
        found: list[int] = []
        for one in query(self._cluster.engine, "/containers/json") or ():
            if SANDBOX.items() <= one["Labels"].items():
                container = query(self._cluster.engine, f"/containers/{one['Id']}/json")
                found += below(container["State"]["Pid"]) if container and container["State"]["Pid"] else []
        return found

    async def strike(self, victim: str, dice: random.Random) -> None:
        if victim == "pod deleted":
            names = await asyncio.to_thread(self._cluster.names, "pods")
            if names:
                chosen = dice.choice(names).removeprefix("pods ")
                with suppress(HTTPError):
                    await asyncio.to_thread(self._cluster.request, "DELETE", f"{PODS}/{chosen}")
            return
        program = self._cluster.server if victim == "API server" else self._cluster.kubelet
        await asyncio.to_thread(program.kill)
        await asyncio.sleep(dice.uniform(0.0, 1.0))
        await asyncio.to_thread(program.start)
        await asyncio.to_thread(self._cluster.wait_for_server)
        await self._ready()

    async def _ready(self) -> None:
        """Return when the machine is ready, as the API server has heard."""
        ready = ""
        while ready != "True":
            node = await asyncio.to_thread(self._cluster.request, "GET", f"/api/v1/nodes/{NODE}")
            ready = {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}["Ready"]

    def left(self, paths: MeshPaths) -> list[str]:
        """List what the mesh has in the cluster beside its policy and its Lease."""
        try:
            return [name for kind in ("pods", "secrets") for name in self._cluster.names(kind, selector(paths.mesh_id))]
        except OSError as error:
            return [f"the API server does not answer: {error}"]

    async def sweep(self, paths: MeshPaths) -> None:
        for one in await asyncio.to_thread(self.left, paths):
            kind, _, name = one.partition(" ")
            path = f"/api/v1/namespaces/{NAMESPACE}/{kind}/{name}"
            now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            with suppress(HTTPError):
                await asyncio.to_thread(self._cluster.request, "DELETE", path, now)
