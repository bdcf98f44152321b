"""One delivery: an event in CloudEvents' form, signed, posted to an address that may be reached.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
"""

from __future__ import annotations

import errno
import ipaddress
import json
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from sandmesh.mesh import SandboxEvent, SandboxInfo
from sandmesh.mesh.webhooks import sign
from sandmeshd.contracts.public_addresses import is_never_reached, kind_of
from sandmeshd.facades.webhooks.hooks import Hook
from sandmeshd.runtime.resolver import SystemResolver

SECONDS: Final = 15
"""How long an endpoint has for its answer."""
SOURCE: Final = "/sandmesh"
TYPE: Final = "sandmesh.sandbox"
_GONE: Final = 410
_LOOKUPS: Final = 4
"""Questions after an endpoint's name that are under way at a time."""


class EndpointGone(Exception):
    """The endpoint answered that it wants no more events."""


class DeliveryError(Exception):
    """A delivery failed; the message says how."""


def cloud_event(event: SandboxEvent, template: str) -> dict[str, Any]:
    """Return an event in CloudEvents' JSON format."""
    fields = event.to_json()
    data = {"kind": event.kind, "reason": event.reason, "actor": event.actor, "sandbox_id": event.sandbox_id}
    data |= {"template": template, "user_id": event.user_id, "session_key": event.session_key}
    data |= {"project": fields.get("project", ""), "fault": event.fault or ""}
    return {
        "specversion": "1.0",
        "id": f"{event.event_id}/{event.sandbox_id}",
        "source": SOURCE,
        "type": f"{TYPE}.{event.kind}",
        "subject": event.sandbox_id,
        "time": event.time.isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": data,
    }


class LetterForm(Protocol):
    """What the requests of webhooks are."""

    def letter(self, event: SandboxEvent, info: SandboxInfo | None) -> dict[str, Any]:
        """Return the JSON of an event, with its `id`; `info` is None where nothing is known of its sandbox any more."""
        ...

    def headers(self, hook: Hook, letter: dict[str, Any], body: bytes) -> dict[str, str]:
        """Return the headers of a request with a letter, which is `body` on the wire."""
        ...


class CloudEvents:
    """CloudEvents, signed as Standard Webhooks."""

    def letter(self, event: SandboxEvent, info: SandboxInfo | None) -> dict[str, Any]:
        """Return an event."""
        return cloud_event(event, "" if info is None else info.template)

    def headers(self, hook: Hook, letter: dict[str, Any], body: bytes) -> dict[str, str]:
        """Return the headers with the signature."""
        moment = int(time.time())
        return {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "webhook-id": letter["id"],
            "webhook-timestamp": str(moment),
            "webhook-signature": sign(hook.secret, letter["id"], moment, body),
        }


@dataclass(frozen=True)
class Endpoint:
    """Where the events of a webhook go, and in which form."""

    hook: Hook
    http: aiohttp.ClientSession
    form: LetterForm

    async def post(self, event: dict[str, Any]) -> None:
        """Post an event.

        Raises:
            DeliveryError: It was not accepted with a status of 2xx within the time; redirects are not followed.
            EndpointGone: The status is 410.
        """
        body = json.dumps(event, ensure_ascii=False).encode(errors="replace")
        headers = {"User-Agent": "sandmesh-webhooks", **self.form.headers(self.hook, event, body)}
        self._check_literal()
        try:
            request = self.http.post(self.hook.url, data=body, headers=headers, allow_redirects=False)
            async with request as response:
                status = response.status
        except TimeoutError:
            raise DeliveryError(f"no answer within {SECONDS} seconds") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise DeliveryError(str(error) or type(error).__name__) from None
        if status == _GONE:
            raise EndpointGone
        if not 200 <= status < 300:
            raise DeliveryError(f"status {status}")

    def _check_literal(self) -> None:
        host = urlsplit(self.hook.url).hostname or ""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return  # A name: its addresses are checked where it is resolved.
        check_address(host, self.hook.inward)


def check_address(address: str, inward: bool) -> None:
    """Refuse an address that is not public, as the network of a sandbox does.

    Raises:
        DeliveryError: It is not public, which this webhook does not allow, or the host has no address.
    """
    kind = kind_of(address)
    if kind and (not inward or is_never_reached(address)):
        fix = "" if inward else ": where it may be used, add the webhook with --inward"
        raise DeliveryError(f"{address} is not a public address ({kind}){fix}")


class _Resolver(AbstractResolver):
    """Resolves names to addresses that may be used: what is connected to is what was checked.

    Its threads are its own: a name server that does not answer holds up neither other webhooks nor the gateway.
    """

    def __init__(self, inward: bool) -> None:
        self._inward = inward
        self._names = SystemResolver(_LOOKUPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family
        found = await self._names.addresses(host)
        for address in found:
            try:
                check_address(address, self._inward)
            except DeliveryError as error:
                raise PermissionError(errno.EACCES, str(error)) from None
        return [_result(host, address, port) for address in found]

    async def close(self) -> None:
        """Leave the questions under way to their end: nothing waits for them."""


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(
        hostname=host, host=address, port=port, family=family, proto=0, flags=int(socket.AI_NUMERICHOST)
    )


@asynccontextmanager
async def open_endpoint(hook: Hook, form: LetterForm | None = None) -> AsyncGenerator[Endpoint]:
    """Open the endpoint of a webhook until the block ends, in CloudEvents' form by default.

    Proxies of the environment are not used.
    """
    connector = aiohttp.TCPConnector(resolver=_Resolver(hook.inward), family=socket.AF_UNSPEC, use_dns_cache=False)
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    ) as http:
        yield Endpoint(hook, http, form or CloudEvents())
