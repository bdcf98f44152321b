"""A stand-in for Pod Security's admission, which the tests' API server is too old to have: a webhook of its own.

It refuses what the levels refuse of the pods that the driver makes: capabilities, and uid 0.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trustme
from aiohttp import web

from tests.cluster import NAMESPACE, Cluster

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NAME = "pod-security.sandmesh.test"
BASELINE = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}
RESTRICTED = {"NET_BIND_SERVICE"}


def violation(pod: dict[str, Any], level: str) -> str:
    """Return what of a pod breaks a level, empty if nothing does."""
    context = pod["spec"]["containers"][0]["securityContext"]
    added = set(context["capabilities"].get("add", ())) - (BASELINE if level == "baseline" else RESTRICTED)
    found = [f"must not add {', '.join(sorted(added))}"] if added else []
    if level == "restricted" and not (context.get("runAsNonRoot") and context.get("runAsUser")):
        found.append("must set runAsNonRoot=true and no runAsUser=0")
    if level == "restricted" and context.get("allowPrivilegeEscalation") is not False:
        found.append("must set allowPrivilegeEscalation=false")
    if level == "restricted" and "ALL" not in context["capabilities"].get("drop", ()):
        found.append('must set capabilities.drop=["ALL"]')
    if level == "restricted" and pod["spec"].get("securityContext", {}).get("seccompProfile") is None:
        found.append("must set seccompProfile.type to RuntimeDefault or Localhost")
    return f'violates PodSecurity "{level}:latest": {"; ".join(found)}' if found else ""


@asynccontextmanager
async def pod_security(cluster: Cluster, level: str) -> AsyncGenerator[None]:
    """Enforce a level in the namespace of the sandboxes."""

    async def review(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        message = violation(asked["object"], level)
        answer = {"uid": asked["uid"], "allowed": not message, "status": {"message": message, "code": 403}}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})

    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own = authority.issue_cert("127.0.0.1")
    with own.private_key_and_cert_chain_pem.tempfile() as file:
        tls.load_cert_chain(file)
    app = web.Application()
    app.router.add_post("/", review)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port: int = runner.addresses[0][1]
    bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    hook = {
        "name": NAME,
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"level": level}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    }
    try:
        await asyncio.to_thread(cluster.request, "POST", HOOKS, {"metadata": {"name": NAME}, "webhooks": [hook]})
        await _label(cluster, level)
        await _enforced(cluster)
        yield
    finally:
        await _label(cluster, None)
        await asyncio.to_thread(cluster.request, "DELETE", f"{HOOKS}/{NAME}")
        await runner.cleanup()


async def _label(cluster: Cluster, level: str | None) -> None:
    labels = {"metadata": {"labels": {"level": level}}}
    await asyncio.to_thread(cluster.request, "PATCH", f"/api/v1/namespaces/{NAMESPACE}", labels)


async def _enforced(cluster: Cluster) -> None:
    """Return when the API server asks the webhook: it learns of it by a watch of its own."""
    context = {"capabilities": {"add": ["SYS_ADMIN"]}}
    container = {"name": "one", "image": "none", "securityContext": context}
    pod = {"metadata": {"name": "probe"}, "spec": {"containers": [container]}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
    async with asyncio.timeout(30):
        while True:
            try:
                await asyncio.to_thread(cluster.request, "POST", path, pod)
            except OSError:
                return
            await asyncio.sleep(0.1)
