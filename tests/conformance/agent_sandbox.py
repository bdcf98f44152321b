"""agent-sandbox for the tests: its kinds, and a stand-in for its controller that does what the public one documents.

Of a warm pool it keeps pods of the template ready, gives one to each claim, or starts one, writes the Sandbox that the
pod is, and the claim's status: `sandbox` and the condition Ready. The claim owns both, as the public one's does by the
Sandbox between them, so the cluster's own collector deletes it with the claim. The public controller has no build that
the tests could make.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.error import HTTPError

from sandmeshd.drivers.kubernetes.agent_sandbox.claims import VERSION
from tests.cluster import NAMESPACE, Cluster

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = VERSION.partition("/")[0]
KINDS = {"sandboxtemplates": "SandboxTemplate", "sandboxwarmpools": "SandboxWarmPool", "sandboxclaims": "SandboxClaim"}
CORE = "agents.x-k8s.io"
SANDBOXES = f"/apis/{CORE}/v1beta1/namespaces/{NAMESPACE}/sandboxes"
POOL, LABEL = "agents.x-k8s.io/pool", "agents.x-k8s.io/claim-uid"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def place(plural: str, name: str = "") -> str:
    """Return the path of one of its resources, or of all of a kind."""
    path = f"/apis/{VERSION}/namespaces/{NAMESPACE}/{plural}"
    return f"{path}/{name}" if name else path


def _definition(plural: str, kind: str, group: str = GROUP) -> dict[str, Any]:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}}
    version: dict[str, Any] = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": schema,
        "subresources": {"status": {}},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    # Whoever defines kinds of this group has to say who approved them.
    approved = {"api-approved.kubernetes.io": "unapproved, of the tests"}
    return {"metadata": {"name": f"{plural}.{group}", "annotations": approved}, "spec": spec}


async def request(cluster: Cluster, method: str, path: str, body: object = None) -> Any:
    """Request a path of the API server."""
    return await asyncio.to_thread(cluster.request, method, path, body)


@asynccontextmanager
async def agent_sandbox(cluster: Cluster, template: dict[str, Any], warm: int) -> AsyncGenerator[Controller]:
    """Run it with one template and a warm pool of some pods, both named `python`."""
    for plural, kind in KINDS.items():
        # They stay: the cluster's collector finds new ones within half a minute.
        with suppress(HTTPError):
            await request(cluster, "POST", CRDS, _definition(plural, kind))
    with suppress(HTTPError):
        await request(cluster, "POST", CRDS, _definition("sandboxes", "Sandbox", CORE))
    controller = Controller(cluster, template["podTemplate"], warm)
    running: asyncio.Task[None] | None = None
    try:
        await _made(cluster, "sandboxtemplates", template)
        await _made(cluster, "sandboxwarmpools", {"replicas": warm, "sandboxTemplateRef": {"name": "python"}})
        running = asyncio.create_task(controller.run())
        yield controller
    finally:
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await controller.end()
        for plural in KINDS:
            await request(cluster, "DELETE", place(plural))


async def _made(cluster: Cluster, plural: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": VERSION, "kind": KINDS[plural], "metadata": {"name": "python"}, "spec": spec}
    async with asyncio.timeout(30):
        while True:
            # A kind that was just defined is served a moment later.
            with suppress(OSError):
                await request(cluster, "POST", place(plural), body)
                return
            await asyncio.sleep(0.2)


class Controller:
    """Keeps the pool and serves the claims."""

    def __init__(self, cluster: Cluster, pod: dict[str, Any], warm: int) -> None:
        self._cluster = cluster
        self._pod = pod
        self._warm = warm
        self.refusal = ""
        """A reason with which claims are refused; empty: none."""

    async def run(self) -> None:
        """Look at everything again and again."""
        while True:
            # What changed meanwhile is looked at again.
            with suppress(HTTPError):
                await self._look()
            await asyncio.sleep(0.1)

    async def _look(self) -> None:
        claims = (await request(self._cluster, "GET", place("sandboxclaims")))["items"]
        pods = (await request(self._cluster, "GET", f"{PODS}?labelSelector={POOL}"))["items"]
        free = [pod for pod in pods if LABEL not in pod["metadata"]["labels"] and _is_ready(pod)]
        waiting = [pod for pod in pods if LABEL not in pod["metadata"]["labels"]]
        taken = {pod["metadata"]["labels"].get(LABEL): pod for pod in pods}
        for claim in claims:
            if "deletionTimestamp" in claim["metadata"]:
                continue
            await self._serve(claim, taken.get(claim["metadata"]["uid"]), free)
        for _ in range(self._warm - len(waiting)):
            await self._start({"labels": {POOL: "python"}})

    async def _serve(self, claim: dict[str, Any], pod: dict[str, Any] | None, free: list[dict[str, Any]]) -> None:
        if self.refusal:
            await self._tell(claim, "False", self.refusal, "refused by the tests")
        elif pod is None and free:
            path = f"{PODS}/{free.pop()['metadata']['name']}"
            await request(self._cluster, "PATCH", path, {"metadata": _owned(claim)})
        elif pod is None:
            await self._start(_owned(claim))
            await self._tell(claim, "False", "SandboxNotReady", "a pod is started")
        elif pod["status"].get("phase") in ("Failed", "Succeeded"):
            await self._tell(claim, "False", f"Pod{pod['status']['phase']}", "its pod ended")
        elif _is_ready(pod):
            found = {"name": pod["metadata"]["name"], "podIPs": [pod["status"]["podIP"]]}
            await self._write_sandbox(claim, found)
            await self._tell(claim, "True", "DependenciesReady", "", found)

    async def _write_sandbox(self, claim: dict[str, Any], found: dict[str, Any]) -> None:
        owners = _owned(claim)["ownerReferences"]
        described = {"name": found["name"], "ownerReferences": owners}
        body = {
            "apiVersion": f"{CORE}/v1beta1",
            "kind": "Sandbox",
            "metadata": described,
            "spec": {"podTemplate": self._pod},
        }
        ready = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": ""}
        with suppress(HTTPError):
            await request(self._cluster, "POST", SANDBOXES, body)
            status = {"conditions": [ready], "podIPs": found["podIPs"]}
            await request(self._cluster, "PATCH", f"{SANDBOXES}/{found['name']}/status", {"status": status})

    async def _tell(
        self, claim: dict[str, Any], ready: str, reason: str, message: str, sandbox: dict[str, Any] | None = None
    ) -> None:
        condition = {"type": "Ready", "status": ready, "reason": reason, "message": message}
        status = {"conditions": [condition], **({"sandbox": sandbox} if sandbox else {})}
        if {**claim.get("status", {}), **status} != claim.get("status"):
            path = place("sandboxclaims", f"{claim['metadata']['name']}/status")
            with suppress(OSError):
                await request(self._cluster, "PATCH", path, {"status": status})

    async def _start(self, metadata: dict[str, Any]) -> None:
        name = f"python-{secrets.token_hex(4)}"
        body = {"metadata": {"name": name, **metadata}, "spec": self._pod["spec"]}
        await request(self._cluster, "POST", PODS, body)

    async def _remove(self, pod: dict[str, Any]) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            with suppress(OSError):
                await request(self._cluster, "DELETE", f"{PODS}/{pod['metadata']['name']}")

    async def end(self) -> None:
        """Remove all pods, and return when they are gone."""
        async with asyncio.timeout(120):
            while pods := (await request(self._cluster, "GET", f"{PODS}?labelSelector={POOL}"))["items"]:
                for pod in pods:
                    await self._remove(pod)
                await asyncio.sleep(0.3)


def _owned(claim: dict[str, Any]) -> dict[str, Any]:
    name, uid = claim["metadata"]["name"], claim["metadata"]["uid"]
    owner = {"apiVersion": VERSION, "kind": "SandboxClaim", "name": name, "uid": uid, "blockOwnerDeletion": True}
    return {"labels": {POOL: "python", LABEL: uid}, "ownerReferences": [{**owner, "controller": True}]}


def _is_ready(pod: dict[str, Any]) -> bool:
    status = pod["status"]
    return status.get("phase") == "Running" and bool(status.get("podIP")) and "deletionTimestamp" not in pod["metadata"]
