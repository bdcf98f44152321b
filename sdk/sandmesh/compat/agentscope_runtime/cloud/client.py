"""A thin client of AgentBay's API: the actions that a sandbox needs, as the vendor's package sends them.

That package cannot be installed beside this one, since its logging requires an older protobuf. The requests are its
requests but for `SdkStats`, with which it reports itself, and its User-Agent.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    import httpx2

VERSION: Final = "2025-05-06"
DEFAULT_REGION: Final = "cn-hangzhou"
TIMEOUT_SECONDS: Final = 60.0
NOT_FOUND: Final = "InvalidMcpSession.NotFound"


class AgentBayError(RuntimeError):
    """What AgentBay refused or could not do, with its code and the id of the request, which its support asks for."""

    def __init__(self, code: str, message: str, request_id: str = "") -> None:
        super().__init__(f"[{code}] {message}" + (f" (request {request_id})" if request_id else ""))
        self.code = code
        self.request_id = request_id


class AgentBayClient:
    """Configures requests: `async with client.open() as api: await api.request("GetSession", {...})`."""

    def __init__(self, api_key: str, endpoint: str | None = None, timeout: float = TIMEOUT_SECONDS) -> None:
        """Take the endpoint, else AGENTBAY_REGION_ID's, else AGENTBAY_ENDPOINT, else that of the default region.

        Raises:
            ValueError: The endpoint is not an HTTPS address.
        """
        self.api_key = api_key
        self.region = os.environ.get("AGENTBAY_REGION_ID") or DEFAULT_REGION
        self.endpoint = _host(endpoint or _configured(self.region))
        self.timeout = timeout
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[AgentBay]:
        """Open connections for some requests.

        Raises:
            ImportError: httpx2 is not installed.
        """
        try:
            import httpx2  # noqa: PLC0415 - an extra's
        except ImportError:
            raise ImportError("AgentBay's API needs httpx2: pip install 'sandmesh[agentbay]'") from None
        self._tls = self._tls or ssl.create_default_context()
        async with httpx2.AsyncClient(verify=self._tls, timeout=self.timeout) as http:
            yield AgentBay(self, http)


class AgentBay:
    """AgentBay's API over connections that are open."""

    def __init__(self, client: AgentBayClient, http: httpx2.AsyncClient) -> None:
        self.region = client.region
        self._client = client
        self._http = http

    async def request(
        self, action: str, form: Mapping[str, str], query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Send an action and return the body of its response.

        Raises:
            AgentBayError: It was refused, or the endpoint does not answer.
        """
        url = f"https://{self._client.endpoint}/?" + urlencode({**_envelope(action), **(query or {})})
        fields = sorted({**form, "Authorization": f"Bearer {self._client.api_key}"}.items())
        headers = {
            "x-acs-version": VERSION,
            "x-acs-action": action,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        body = await self._post(url, headers, urlencode(fields).encode())
        if body.get("Success", True) is False or (body.get("Code") and "Success" not in body):
            request_id = str(body.get("RequestId", ""))
            raise AgentBayError(str(body.get("Code") or "Unknown"), str(body.get("Message", "no reason")), request_id)
        return body

    async def call_link(self, link_url: str, token: str, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool at a session's own address and return the tool's result.

        Raises:
            AgentBayError: It was refused, or the address does not answer.
        """
        headers = {"Content-Type": "application/json", "X-Access-Token": token}
        request_id = f"link-{int(time.time() * 1000)}-{secrets.randbelow(10**9):09d}"
        content = json.dumps({**tool, "requestId": request_id, "token": token}).encode()
        body = await self._post(f"{link_url.rstrip('/')}/callTool", headers, content)
        result = read_object(read_object(body.get("data")).get("result"))
        if not result:
            raise AgentBayError("InvalidResponse", "the session's address answered without a result", request_id)
        return result

    async def _post(self, url: str, headers: Mapping[str, str], content: bytes) -> dict[str, Any]:
        import httpx2  # noqa: PLC0415 - an extra's

        host = urlsplit(url).netloc
        try:
            response = await self._http.post(url, headers=dict(headers), content=content)
        except httpx2.HTTPError as error:
            detail = f"{host} does not answer: {error or type(error).__name__}; nothing is known of the request"
            raise AgentBayError("Unreachable", detail) from None
        body = read_object(response.text)
        if not body:
            raise AgentBayError(str(response.status_code), f"{host} answered with something else than a JSON object")
        if response.is_error:
            code = str(body.get("Code") or response.status_code)
            raise AgentBayError(code, str(body.get("Message", "no reason")), str(body.get("RequestId", "")))
        return body


def read_object(value: Any) -> dict[str, Any]:
    """Return a JSON object, which may be text; an empty one where it is something else."""
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def read_list(value: Any) -> list[Any]:
    """Return a JSON array, which may be text; an empty one where it is something else."""
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return []
    return list(cast("Iterable[Any]", found)) if isinstance(found, list) else []


def _envelope(action: str) -> dict[str, str]:
    return {
        "Action": action,
        "Format": "json",
        "Version": VERSION,
        "Timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "SignatureNonce": secrets.token_hex(16),
    }


def _configured(region: str) -> str:
    named = None if os.environ.get("AGENTBAY_REGION_ID") else os.environ.get("AGENTBAY_ENDPOINT")
    return named or f"agentbay.{region}.aliyuncs.com"


def _host(endpoint: str) -> str:
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(
            f"AgentBay's endpoint must be an https:// address, not {endpoint!r}: requests carry the API key"
        )
    return parts.netloc + parts.path.rstrip("/")
