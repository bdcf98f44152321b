"""Canaries: pods that try what a cluster is said to do, since its API accepts fields that are not enforced.

They are an ordinary user's in all, so that every namespace admits them, and are gone before any sandbox is there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import structlog

from sandmesh.errors import SandmeshError
from sandmeshd.drivers.kubernetes.cluster.requests import ApiRefusal, Cluster
from sandmeshd.drivers.kubernetes.names import hashed, mesh_labels
from sandmeshd.drivers.kubernetes.pods.pod import ORDINARY
from sandmeshd.drivers.kubernetes.pods.reasons import status_of
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings

LONGEST_SECONDS = 120.0
POLL_SECONDS = 0.2
PORT = 8572
MEMORY = 128 << 20
MESSAGE_FILE = "/dev/termination-log"
"""What is written there is in the pod's status, whatever becomes of its log."""

LISTEN = f"""
import socket
server = socket.create_server(("", {PORT}))
while True:
    server.accept()[0].close()
"""

# What listens may take a moment to do so, and a network plugin to heed a pod that is new.
CONNECT = f"""
import socket, sys, time
wanted, failures, deadline = sys.argv[2], 0, time.monotonic() + 30
while time.monotonic() < deadline and (wanted == "open" or failures < 3):
    try:
        socket.create_connection((sys.argv[1], {PORT}), 2).close()
    except OSError:
        failures += 1
    else:
        failures = 0
        if wanted == "open":
            break
    time.sleep(0.3)
with open("{MESSAGE_FILE}", "w") as message:
    message.write("open" if not failures else "shut" if failures > 2 else "unclear")
"""

FACTS = f"""
import json, os
message = open("{MESSAGE_FILE}", "w")
own = os.uname()
kernel = f"{{own.sysname}} {{own.release}} {{own.version}}"
print(json.dumps({{"kernel": kernel, "uids": open("/proc/self/uid_map").read().split()}}), file=message, flush=True)
child = os.fork()
if child == 0:
    open("/proc/self/oom_score_adj", "w").write("1000")
    kept = bytearray()
    while len(kept) < {4 * MEMORY}:
        kept += bytes(range(1, 256)) * 4096
    os._exit(0)
print(json.dumps({{"killed": os.WIFSIGNALED(os.waitpid(child, 0)[1])}}), file=message, flush=True)
"""

log = structlog.get_logger()


class CanaryResult(Enum):
    """What a canary shows."""

    HOLDS = "tried by a pod"
    CONTRADICTED = "contradicted by a pod"
    UNKNOWN = "declared by the operator"


@dataclass(frozen=True)
class Facts:
    """What canaries found out of a cluster."""

    network_policy: CanaryResult = CanaryResult.UNKNOWN
    single_process_oom: CanaryResult = CanaryResult.UNKNOWN
    user_namespaces: CanaryResult = CanaryResult.UNKNOWN
    kernel: str = ""
    """As a pod of the driver's runtime class sees it; empty: none told."""
    node: str = ""
    """The machine that the pod was on."""


@dataclass(frozen=True)
class Canaries:
    """Makes the canaries of one mesh."""

    settings: KubernetesSettings
    cluster: Cluster
    image: str

    async def facts(self) -> Facts:
        """Return what a pod finds of its kernel, its user namespace and the end of a process that takes all memory."""
        body = self._body("facts", FACTS, [], {})
        body["spec"]["containers"][0]["resources"] = {"limits": {"memory": str(MEMORY)}}
        if self.settings.runtime_class:
            body["spec"]["runtimeClassName"] = self.settings.runtime_class
        if "user-namespaces" in self.settings.declared:
            body["spec"]["hostUsers"] = False
        async with self._pod(body) as name:
            pod = await self._until(name, _has_ended)
        node = str(pod["spec"].get("nodeName") or "") if pod else ""
        found: dict[str, Any] = {}
        with suppress(ValueError):
            for line in str(_end_of(pod).get("message") or "").splitlines():
                found |= json.loads(line)
        if "kernel" not in found:
            return Facts(node=node)
        kernel, uids = str(found["kernel"]), list(found["uids"])
        oom = CanaryResult.HOLDS if found.get("killed") else CanaryResult.UNKNOWN
        if "killed" not in found and _end_of(pod).get("reason") == "OOMKilled":
            # Its first process was killed, too.
            oom = CanaryResult.CONTRADICTED
        own = CanaryResult.HOLDS if uids[1:2] != ["0"] else CanaryResult.CONTRADICTED
        return Facts(CanaryResult.UNKNOWN, oom, CanaryResult.UNKNOWN if is_gvisor(kernel) else own, kernel, node)

    async def network_policy(self) -> CanaryResult:
        """Return whether a pod under the mesh's policy is kept from what another one reaches."""
        async with self._pod(self._body("listens", LISTEN, [], {})) as listener:
            address = await self._address(listener)
            # One after the other: where nothing listens yet, or any more, it is not a policy that shuts a pod out.
            if not address or await self._connects("open", address, {}) != "open":
                return CanaryResult.UNKNOWN
            kept = await self._connects("shut", address, mesh_labels(self.settings.paths.mesh_id))
            if await self._address(listener) != address:
                return CanaryResult.UNKNOWN
        return {"shut": CanaryResult.HOLDS, "open": CanaryResult.CONTRADICTED}.get(kept, CanaryResult.UNKNOWN)

    async def _connects(self, wanted: str, address: str, labels: Mapping[str, str]) -> str:
        """Return whether a pod with some labels finds the way to another one open or shut; empty: it tells nothing."""
        async with self._pod(self._body(wanted, CONNECT, [address, wanted], labels)) as name:
            return str(_end_of(await self._until(name, _has_ended)).get("message") or "")

    def _body(self, kind: str, program: str, arguments: list[str], labels: Mapping[str, str]) -> dict[str, Any]:
        container: dict[str, Any] = {
            "name": "canary",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/usr/bin/python3", "-I", "-S", "-c", program, *arguments],
            "securityContext": ORDINARY,
        }
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "activeDeadlineSeconds": int(LONGEST_SECONDS),
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        }
        if self.settings.node_selector:
            spec["nodeSelector"] = self.settings.node_selector
        if self.settings.pull_secrets:
            spec["imagePullSecrets"] = [{"name": name} for name in self.settings.pull_secrets]
        name = f"sm-canary-{kind}-{hashed(self.settings.paths.mesh_id)}"
        described = {"name": name, "labels": {"app.kubernetes.io/managed-by": "sandmesh", **labels}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": described, "spec": spec}

    @asynccontextmanager
    async def _pod(self, body: dict[str, Any]) -> AsyncGenerator[str]:
        """Make a pod, in place of one that a killed driver left, and delete it afterwards."""
        name: str = body["metadata"]["name"]
        path = self.cluster.path("pods", name)
        await self._remove(path)
        try:
            with suppress(ApiRefusal):
                await self.cluster.create(self.cluster.path("pods"), body)
            yield name
        finally:
            with suppress(SandmeshError, TimeoutError):
                await self._remove(path)

    async def _remove(self, path: str) -> None:
        async with asyncio.timeout(LONGEST_SECONDS):
            while await self.cluster.find(path) is not None:
                await self.cluster.delete(path, grace=1)
                await asyncio.sleep(POLL_SECONDS)

    async def _address(self, name: str) -> str:
        """Return the address of a pod that runs, empty where it does not in time, or has ended."""
        pod = await self._until(name, lambda status: _runs(status) or _has_ended(status))
        return str(pod["status"]["podIP"]) if pod and _runs(pod["status"]) else ""

    async def _until(self, name: str, holds: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any] | None:
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                while True:
                    pod = await self.cluster.find(self.cluster.path("pods", name))
                    if pod is None or holds(status_of(pod)):
                        return pod
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            log.warning("a canary did not get on", pod=name, seconds=LONGEST_SECONDS)
            return None


def _end_of(pod: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return how the container of a pod ended, nothing where it did not."""
    statuses: list[Mapping[str, Any]] = status_of(pod or {}).get("containerStatuses") or [{}]
    state: Mapping[str, Mapping[str, Any]] = statuses[0].get("state") or {}
    return state.get("terminated") or {}


def _runs(status: Mapping[str, Any]) -> bool:
    return bool(status.get("podIP")) and status.get("phase") == "Running"


def _has_ended(status: Mapping[str, Any]) -> bool:
    return status.get("phase") in ("Succeeded", "Failed")


def is_gvisor(kernel: str) -> bool:
    """Return whether a kernel is gVisor's, which says the same of itself in all its versions."""
    return "4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016" in kernel
