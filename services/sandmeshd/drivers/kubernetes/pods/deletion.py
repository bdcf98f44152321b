"""The deletion of pods: by uid, so that what is made later under the same name is never meant."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.kinds import ResourceKind
from sandmeshd.drivers.kubernetes.pods.watch import PodWatcher

DELETE_SECONDS, LOOK_SECONDS = 120.0, 2.0
GRACE_SECONDS = 1


class Deleter:
    """Deletes pods of one driver."""

    def __init__(self, cluster: Cluster, watcher: PodWatcher, kind: ResourceKind) -> None:
        self._kind = kind
        self._cluster = cluster
        self._watcher = watcher

    async def delete(self, name: str) -> None:
        """Delete a pod, if it exists, and return when it is gone, with all its processes.

        Raises:
            RuntimeUnavailable: It does not go: its machine may not answer.
        """
        path = self._kind.path(self._cluster, name)
        # The watch may not have told of it yet.
        known = self._watcher.find(name)
        pod = known or await self._cluster.find(path)
        if pod is None:
            return
        uid = str(pod["metadata"]["uid"])
        with self._watcher.changes_of(name) as changed:
            await self._cluster.delete(path, uid, GRACE_SECONDS, propagation=self._kind.propagation)
            try:
                async with asyncio.timeout(DELETE_SECONDS):
                    await self._gone(name, uid, changed, known=known is not None)
            except TimeoutError:
                fix = f"look at its machine: kubectl -n {self._cluster.namespace} describe pod {name}"
                message = f"the pod {name} was deleted and is not gone after {DELETE_SECONDS:g} s: {fix}"
                raise RuntimeUnavailable(message, {"fix": fix}) from None

    async def _gone(self, name: str, uid: str, changed: asyncio.Event, *, known: bool) -> None:
        """Return when a pod is gone, as the watch tells; where that is silent, the API server is asked."""
        path = self._kind.path(self._cluster, name)
        while True:
            there = _is(self._watcher.find(name), uid)
            if known and not there:
                return
            known = known or there
            changed.clear()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await changed.wait()
            except TimeoutError:
                if not _is(await self._cluster.find(path), uid):
                    return


def _is(pod: Mapping[str, Any] | None, uid: str) -> bool:
    return pod is not None and pod["metadata"]["uid"] == uid
