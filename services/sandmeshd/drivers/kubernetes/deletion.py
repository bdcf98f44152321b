"""The deletion of pods: by uid, so that what is made later under the same name is never meant."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.watch import PodWatcher

DELETE_SECONDS, LOOK_SECONDS = 120.0, 2.0
GRACE_SECONDS = 1


class Deleter:
    """Deletes pods of one driver."""

    def __init__(self, cluster: Cluster, watcher: PodWatcher) -> None:
        self._cluster = cluster
        self._watcher = watcher

    async def delete(self, name: str) -> None:
        """Delete a pod, if it exists, and return when it is gone, with all its processes.

        Raises:
            RuntimeUnavailable: It does not go: its machine may not answer.
        """
        path = self._cluster.path("pods", name)
        pod = await self._cluster.find(path)
        if pod is None:
            return
        uid = str(pod["metadata"]["uid"])
        with self._watcher.changes_of(name) as changed:
            await self._cluster.delete(path, uid, GRACE_SECONDS)
            try:
                async with asyncio.timeout(DELETE_SECONDS):
                    while await self._is_there(name, uid):
                        changed.clear()
                        with suppress(TimeoutError):
                            async with asyncio.timeout(LOOK_SECONDS):
                                await changed.wait()
            except TimeoutError:
                fix = f"look at its machine: kubectl -n {self._cluster.namespace} describe pod {name}"
                message = f"the pod {name} was deleted and is not gone after {DELETE_SECONDS:g} s: {fix}"
                raise RuntimeUnavailable(message, {"fix": fix}) from None

    async def _is_there(self, name: str, uid: str) -> bool:
        pod = await self._cluster.find(self._cluster.path("pods", name))
        return pod is not None and pod["metadata"]["uid"] == uid
