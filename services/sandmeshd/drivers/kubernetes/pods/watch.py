"""The pods of a mesh as the API server last reported them: one list, and one watch that goes on from it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from sandmesh.errors import SandmeshError
from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.kubernetes.cluster.requests import GONE, ApiRefusal, Cluster
from sandmeshd.drivers.kubernetes.kinds import PODS, ResourceKind
from sandmeshd.drivers.kubernetes.names import sandbox_id_of
from sandmeshd.drivers.kubernetes.pods.reasons import gone_detail

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
SHORTEST_WATCH, LONGEST_WATCH = 290, 600
"""Seconds after which the server is to end a watch; drivers choose them at random, not to return all together."""

log = structlog.get_logger()


class PodWatcher(Watched):
    """Follows the pods of a mesh, wakes those who wait for one, and tells watchers whose sandbox changed."""

    def __init__(self, cluster: Cluster, selector: str, kind: ResourceKind = PODS) -> None:
        super().__init__()
        self._cluster = cluster
        self._kind = kind
        self._path = kind.path(cluster)
        self._selector = selector
        self._version = ""
        self._pods: dict[str, Mapping[str, Any]] = {}
        self._gone: dict[str, str] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._starting: set[str] = set()

    def find(self, name: str) -> Mapping[str, Any] | None:
        """Return a pod, None if there is none."""
        return self._pods.get(name)

    def sandbox_ids(self) -> set[str]:
        """Return the sandboxes that have a pod."""
        return {sandbox_id_of(pod) for pod in self._pods.values()}

    def why_gone(self, name: str) -> str:
        """Return why a pod is gone."""
        return self._gone.get(name, "its pod is gone")

    def pod_name(self, name: str) -> str:
        """Return the name of the pod of a claim, or the pod's own."""
        found = self._pods.get(name)
        return str(found["status"].get("podName") or name) if found else name

    def forget(self, name: str) -> None:
        """Forget why a pod is gone, as its sandbox is deleted."""
        self._gone.pop(name, None)

    def is_starting(self, name: str) -> bool:
        """Return whether a pod is being started here."""
        return name in self._starting

    @contextmanager
    def start_of(self, name: str) -> Generator[asyncio.Event]:
        """Yield an event that is set whenever a pod changes; watchers hear nothing of it until the block ends."""
        self._starting.add(name)
        try:
            with self.changes_of(name) as changed:
                yield changed
        finally:
            self._starting.discard(name)

    @contextmanager
    def changes_of(self, name: str) -> Generator[asyncio.Event]:
        """Yield an event that is set whenever a pod changes."""
        event = asyncio.Event()
        self._waiting.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[name].discard(event)
            if not self._waiting[name]:
                del self._waiting[name]

    async def list(self) -> None:
        """List the pods, and report what changed since they were known last.

        Raises:
            SandmeshError: The API server does not answer, or refuses.
        """
        found, self._version = await self._cluster.list(self._path, self._selector)
        pods = {str(pod["metadata"]["name"]): self._kind.as_pod(pod) for pod in found}
        before, self._pods = self._pods, pods
        for name, pod in pods.items():
            old = before.get(name)
            if old is None or old["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]:
                self._notify(name, pod)
        for name in before.keys() - pods.keys():
            self._gone[name] = gone_detail(before[name])
            self._notify(name, before[name])

    async def follow(self) -> None:
        """Follow the pods forever; `list` comes first."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._receive()
                pause = FIRST_PAUSE
                continue
            except ApiRefusal as refusal:
                if refusal.status == GONE:
                    log.info("the API server has forgotten where the watch was; the pods are listed again")
                    self._version = ""
                else:
                    log.warning("the watch of the pods was refused; it is retried", reason=refusal.message)
            except SandmeshError as error:
                log.warning("the watch of the pods ended; it is retried", reason=error.message)
            except Exception as error:
                # A server that is killed breaks off in the middle of an event.
                log.warning("the watch of the pods broke; it is retried", reason=str(error))
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _receive(self) -> None:
        if not self._version:
            await self.list()
        # Chosen at random, so that not all drivers return together.
        seconds = random.randint(SHORTEST_WATCH, LONGEST_WATCH)  # noqa: S311 - no secret
        async for event in self._cluster.watch(self._path, self._selector, self._version, seconds):
            pod = event["object"]
            self._version = str(pod["metadata"]["resourceVersion"])
            if event["type"] != "BOOKMARK":
                self._take(str(pod["metadata"]["name"]), self._kind.as_pod(pod), gone=event["type"] == "DELETED")

    def _take(self, name: str, pod: Mapping[str, Any], *, gone: bool) -> None:
        if gone:
            self._pods.pop(name, None)
            self._gone[name] = gone_detail(pod)
        else:
            self._pods[name] = pod
        self._notify(name, pod)

    def _notify(self, name: str, pod: Mapping[str, Any]) -> None:
        for event in self._waiting.get(name, ()):
            event.set()
        if name not in self._starting:
            self.changed(sandbox_id_of(pod))
