"""Authentication with a registry: what its 401 demands, and the tokens that come of it.

After the Distribution project's token specification, and OAuth 2 for identity tokens. Headers and answers are bounded,
and a password goes only over TLS, or to a registry that itself has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandmesh.errors import PermissionDenied, RuntimeUnavailable
from sandmeshd.images.registry.credentials import Credentials
from sandmeshd.images.registry.public_only import refusal_in

LONGEST_HEADER: Final = 8192
_LARGEST_ANSWER: Final = 1 << 20
_PARAMETER: Final = re.compile(r'([a-zA-Z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


@dataclass(frozen=True)
class Challenge:
    """What a registry demands: "basic", or a "bearer" token from a realm for a service and a scope."""

    scheme: str
    realm: str = ""
    service: str = ""
    scope: str = ""


class _Token(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    token: str = Field(default="", max_length=65536, repr=False)
    access_token: str = Field(default="", max_length=65536, repr=False)


def parse_challenge(header: str) -> Challenge | None:
    """Parse a WWW-Authenticate header; None if it demands nothing that is known."""
    scheme, _, rest = header[:LONGEST_HEADER].strip().partition(" ")
    if scheme.lower() == "basic":
        return Challenge("basic")
    if scheme.lower() != "bearer":
        return None
    values = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}
    return Challenge("bearer", values.get("realm", ""), values.get("service", ""), values.get("scope", ""))


async def authorize(
    session: aiohttp.ClientSession,
    challenge: Challenge,
    credentials: Credentials | None,
    *,
    is_plain: bool,
    proxy: str | None = None,
) -> str:
    """Return the Authorization header that a registry wants; `is_plain` says that it speaks no TLS itself.

    Raises:
        PermissionDenied: There are no credentials for it, or they are not right.
        RuntimeUnavailable: Who gives tokens does not respond.
    """
    if challenge.scheme == "basic":
        if credentials is None or not credentials.password:
            raise PermissionDenied("it wants a password")
        return credentials.basic()
    _check_realm(challenge.realm, is_plain=is_plain)
    method, options = _request(challenge, credentials)
    try:
        async with session.request(method, challenge.realm, proxy=proxy, allow_redirects=False, **options) as response:
            data, status = await _read(response), response.status
    except (aiohttp.ClientError, TimeoutError) as error:
        if refused := refusal_in(error):
            raise PermissionDenied(f"it demands a token from {urlsplit(challenge.realm).netloc}: {refused}") from None
        message = f"{urlsplit(challenge.realm).netloc}, which gives tokens for it, does not respond: {error}"
        raise RuntimeUnavailable(message, {"fix": "try later"}) from None
    if status in {400, 401, 403, 404}:
        raise PermissionDenied("its credentials are not right" if credentials else "it gives no token without a login")
    return f"Bearer {_parse_token(data, status)}"


async def _read(response: aiohttp.ClientResponse) -> bytes:
    data = b""
    while len(data) < _LARGEST_ANSWER and (more := await response.content.read(_LARGEST_ANSWER - len(data))):
        data += more
    return data


def _request(challenge: Challenge, credentials: Credentials | None) -> tuple[str, dict[str, Any]]:
    """Return the method and the options of the request for a token."""
    facts = {name: value for name, value in (("service", challenge.service), ("scope", challenge.scope)) if value}
    if credentials is not None and credentials.identity_token:
        grant = {"grant_type": "refresh_token", "client_id": "sandmesh", "refresh_token": credentials.identity_token}
        return "POST", {"data": {**grant, **facts}}
    headers = {} if credentials is None else {"Authorization": credentials.basic()}
    return "GET", {"params": facts, "headers": headers}


def _check_realm(realm: str, *, is_plain: bool) -> None:
    parts = urlsplit(realm)
    if parts.scheme not in (("https", "http") if is_plain else ("https",)) or not parts.hostname:
        raise PermissionDenied(f"it demands a token from {realm[:200]!r}, which is not a URL with https")


def _parse_token(data: bytes, status: int) -> str:
    try:
        answer = _Token.model_validate_json(data) if status == 200 else _Token()
    except ValidationError:
        answer = _Token()
    token = answer.token or answer.access_token
    if not token or not token.isprintable() or not token.isascii():
        raise RuntimeUnavailable(f"its tokens cannot be had: HTTP {status}", {"fix": "try later"})
    return token
