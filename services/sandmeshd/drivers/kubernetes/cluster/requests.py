"""The API server as the driver uses it: each request has a time limit, and refusals are the mesh's errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import ClientError, ClientResponse, ClientTimeout, ClientWebSocketResponse
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.stream import WsApiClient

from sandmesh.errors import InternalError, InvalidArgument, PoolExhausted, RuntimeUnavailable, SandmeshError

REQUEST_SECONDS = 30.0
SILENCE_SECONDS = 150.0
"""A watch without a bookmark for so long is one whose connection is gone."""

PAGE = 500
JSON = {"Content-Type": "application/json", "Accept": "application/json"}
MERGE = {
    "Content-Type": "application/merge-patch+json",
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
}
"""The headers of a request, and of one that changes a resource: of that its metadata is sent back, or a refusal."""

CONFLICT, GONE, NOT_FOUND = 409, 410, 404
FORBIDDEN = "allow that to the driver's user (docs/kubernetes.md)"
"""The fix for a refusal by the cluster's rights or rules."""

MISSING = "NamespaceMissing"
"""The reason that is given here to a refusal for want of the namespace."""

Resource = dict[str, Any]


class ApiRefusal(Exception):
    """An answer of the API server that is not a success, for callers that know what it means."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class ClusterClients:
    """The library's clients, for requests and for WebSockets."""

    plain: ApiClient
    websockets: WsApiClient


class Cluster:
    """The requests to an API server, in one namespace."""

    def __init__(self, clients: ClusterClients, url: str, namespace: str, *, is_inside: bool) -> None:
        self._client: Any = clients.plain
        self._websockets: Any = clients.websockets
        self.url = url
        self.namespace = namespace
        self.is_inside = is_inside
        """Whether this process runs in a pod of the cluster."""

    def path(self, kind: str, name: str = "", api: str = "/api/v1") -> str:
        """Return the path of a kind of resources in the namespace, or of one."""
        path = f"{api}/namespaces/{self.namespace}/{kind}"
        return f"{path}/{name}" if name else path

    async def get(self, path: str, **query: str) -> Resource:
        """Return a resource, or a list of them.

        Raises:
            ApiRefusal: It does not exist, or what is continued does not any more.
            SandmeshError: As `translated`.
        """
        return await self._request("GET", path, query=query)

    async def find(self, path: str) -> Resource | None:
        """Return a resource, None if it does not exist."""
        try:
            return await self.get(path)
        except ApiRefusal as refusal:
            if refusal.status == NOT_FOUND:
                return None
            raise

    async def list(self, path: str, selector: str = "") -> tuple[list[Resource], str]:
        """Return the resources with some labels, and the version at which a watch goes on from them."""
        query = {"limit": str(PAGE), **({"labelSelector": selector} if selector else {})}
        found: list[Resource] = []
        while True:
            page = await self.get(path, **query)
            found += page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return found, str(page["metadata"]["resourceVersion"])
            query["continue"] = token

    async def create(self, path: str, body: Resource) -> Resource:
        """Create a resource.

        Raises:
            ApiRefusal: It exists.
            SandmeshError: As `translated`.
        """
        return await self._request("POST", path, body)

    async def patch(self, path: str, body: Resource) -> Resource:
        """Merge fields into a resource; return its metadata."""
        return await self._request("PATCH", path, body)

    async def delete(
        self, path: str, uid: str = "", grace: int | None = None, version: str = "", propagation: str = ""
    ) -> None:
        """Delete a resource, if it exists and has the uid and the version."""
        body: Resource = {"apiVersion": "v1", "kind": "DeleteOptions"}
        wanted = {"uid": uid, "resourceVersion": version}
        body["preconditions"] = {name: value for name, value in wanted.items() if value}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        if propagation:
            body["propagationPolicy"] = propagation
        try:
            await self._request("DELETE", path, body)
        except ApiRefusal as refusal:
            if refusal.status not in (NOT_FOUND, CONFLICT):
                raise

    async def text(self, path: str, **query: str) -> bytes:
        """Return what is not JSON, as a log."""
        try:
            async with self._response("GET", path, None, query, REQUEST_SECONDS) as response:
                return await response.read()
        except ApiRefusal as refusal:
            raise translated(refusal, self) from None

    async def watch(self, path: str, selector: str, version: str, seconds: int) -> AsyncGenerator[Resource]:
        """Yield the changes since a version, and bookmarks, until the server ends it.

        Raises:
            ApiRefusal: 410: that version is forgotten, so that the resources must be listed again.
            SandmeshError: As `translated`.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        query |= {"labelSelector": selector, "timeoutSeconds": str(seconds)}
        limit = ClientTimeout(total=None, sock_connect=REQUEST_SECONDS, sock_read=SILENCE_SECONDS)
        async with self._response("GET", path, None, query, limit) as response:
            async for line in response.content:
                event: Resource = json.loads(line)
                if event["type"] == "ERROR":
                    raise _refusal(int(event["object"].get("code") or 500), event["object"])
                yield event

    @asynccontextmanager
    async def port_forward(self, pod: str, port: int) -> AsyncGenerator[ClientWebSocketResponse]:
        """Yield a WebSocket that carries one connection to a port of a pod.

        Raises:
            RuntimeUnavailable: The API server does not answer, or refuses.
        """
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await self._websockets.call_api(
                    f"{self.path('pods', pod)}/portforward",
                    "GET",
                    query_params=[("ports", str(port))],
                    header_params={},
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                )
                socket: ClientWebSocketResponse = await request
        except (ClientError, OSError, TimeoutError) as error:
            raise unreachable(self.url, error) from None
        async with socket:
            yield socket

    async def _request(
        self,
        method: str,
        path: str,
        body: Resource | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Resource:
        try:
            async with self._response(method, path, body, query or {}, REQUEST_SECONDS) as response:
                answer: Resource = await response.json()
                return answer
        except ApiRefusal as refusal:
            if refusal.status in (NOT_FOUND, CONFLICT, GONE) and refusal.reason != MISSING:
                raise
            raise translated(refusal, self) from None

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        body: Resource | None,
        query: Mapping[str, str],
        limit: object,
    ) -> AsyncGenerator[ClientResponse]:
        try:
            response: ClientResponse = await self._client.call_api(
                path,
                method,
                query_params=list(query.items()),
                header_params=dict(MERGE if method == "PATCH" else JSON),
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=limit,
            )
            async with response:
                if response.status >= 300:
                    raise _refusal(response.status, _status(await response.read()))
                yield response
        except (ClientError, OSError, TimeoutError) as error:
            raise unreachable(self.url, error) from None


def unreachable(url: str, error: BaseException) -> RuntimeUnavailable:
    """Return the error for an API server that does not answer."""
    fix = "check that the kubeconfig's context is the cluster that is meant, and that it runs (kubectl version)"
    return RuntimeUnavailable(
        f"the API server at {url} does not answer ({str(error) or 'timeout'}): {fix}", {"fix": fix}
    )


def _status(data: bytes) -> Resource:
    try:
        found: Any = json.loads(data)
    except ValueError:
        found = None
    return cast("Resource", found) if isinstance(found, dict) else {"message": data.decode("utf-8", "replace")[:500]}


def _refusal(status: int, found: Resource) -> ApiRefusal:
    message = str(found.get("message") or f"status {status}")
    reason = str(found.get("reason") or "")
    if status == NOT_FOUND and message.startswith("namespaces "):
        reason = MISSING
    return ApiRefusal(status, reason, message)


def translated(refusal: ApiRefusal, cluster: Cluster) -> SandmeshError:
    """Return the mesh's error for a refusal.

    RuntimeUnavailable if a right, valid credentials or the namespace lacks; PoolExhausted if a quota is used up;
    InvalidArgument if the request is invalid; InternalError otherwise.
    """
    message = refusal.message
    if "exceeded quota" in message:
        facts = {"bound": "resource quota", "detail": message}
        return PoolExhausted(f"the namespace's quota is used up: {message}", facts, retry_after=1.0)
    found = _namespace_trouble(refusal, cluster.namespace) or _rights_trouble(refusal)
    if found is not None:
        return RuntimeUnavailable(f"{found[0]}: {found[1]}", {"fix": found[1]})
    if refusal.status in (400, 422):
        return InvalidArgument(f"the API server does not accept this: {message}")
    return InternalError(f"the API server failed: {message}")


def _namespace_trouble(refusal: ApiRefusal, namespace: str) -> tuple[str, str] | None:
    """Return what is wrong with the namespace, and the fix."""
    if refusal.reason == MISSING:
        fix = f"create it (kubectl create namespace {namespace}), or set SANDMESH_KUBERNETES_NAMESPACE"
        return f"the cluster has no namespace {namespace}", fix
    if "is being terminated" in refusal.message:
        fix = "wait until it is gone and create it again, or set SANDMESH_KUBERNETES_NAMESPACE to another"
        return f"the namespace {namespace} is being deleted", fix
    return None


def _rights_trouble(refusal: ApiRefusal) -> tuple[str, str] | None:
    """Return what the driver may not, and the fix."""
    if refusal.status == 401:
        fix = "renew the credentials of the kubeconfig's context, or log in again"
        return "the API server does not accept the credentials", fix
    if refusal.status == 403:
        return f"the API server refuses: {refusal.message}", FORBIDDEN
    return None
