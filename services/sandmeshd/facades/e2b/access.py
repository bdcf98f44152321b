"""Who may use a sandbox's files, processes and ports: those who have its tokens, or a signed URL."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import re
import time
from typing import Final

from aiohttp import web

from sandmesh.shared.numbers import decimal
from sandmeshd.facades.e2b.envd.paths import check_user
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import Guest, Guests
from sandmeshd.facades.e2b.identities import TokenMaker, file_signature
from sandmeshd.facades.e2b.marks import read_marks

_SIGNATURE: Final = re.compile(r"v1_[A-Za-z0-9+/_-]{43}")
_MOST_SEARCHES: Final = 32
"""How many signed URLs that name no sandbox may wait for a search at a time."""

_PAUSE_EACH: Final = 100
RECENT_SECONDS: Final = 1.0
_LATEST: Final = 1 << 40
"""The latest moment at which a signed URL may end, in seconds since 1970."""

_OPERATIONS: Final = {"GET": "read", "POST": "write"}


class Access:
    """Checks what requests to sandboxes show."""

    def __init__(self, tokens: TokenMaker) -> None:
        self._tokens = tokens
        self._searching = 0

    def check(self, guest: Guest, request: web.Request) -> None:
        """Check a request for files or processes.

        Raises:
            ApiError: It does not show the token of a secured sandbox, or names a user that there is none of.
        """
        self.check_token(guest, request)
        check_user(requested_user(request), any_user=guest.rooted)

    def check_token(self, guest: Guest, request: web.Request) -> None:
        """Check the token of a secured sandbox.

        Raises:
            ApiError: The request does not show it.
        """
        if not guest.marks.secure:
            return
        token, shown = self._tokens.envd_token(guest.sandbox_id), request.headers.get("X-Access-Token", "")
        if shown and _same(shown, token):
            return
        if shown:
            raise ApiError(401, "access token present in header but does not match")
        if request.path != "/files":
            raise ApiError(401, "unauthenticated: send the sandbox's token as X-Access-Token")
        check_signature(request, token)

    def check_traffic(self, guest: Guest, request: web.Request) -> None:
        """Check a request for a port that is not public.

        Raises:
            ApiError: It does not show the sandbox's token for traffic.
        """
        if guest.marks.public_traffic:
            return
        shown = request.headers.get("E2B-Traffic-Access-Token", "")
        if not shown:
            name = "Token header 'e2b-traffic-access-token'"
            raise ApiError(403, f"Sandbox is secured with traffic access token. {name} is missing")
        if not _same(shown, self._tokens.traffic_token(guest.sandbox_id)):
            name = "Token header 'e2b-traffic-access-token'"
            raise ApiError(403, f"Sandbox is secured with traffic access token. {name} is invalid")

    async def signed_for(self, guests: Guests, request: web.Request) -> str:
        """Return the sandbox that a signed URL without a name is for.

        Raises:
            ApiError: It is for none that lives.
        """
        shown = request.query.get("signature", "")
        if _SIGNATURE.fullmatch(shown) is None:
            raise ApiError(401, "invalid signature")
        if self._searching >= _MOST_SEARCHES:
            raise ApiError(429, "too many signed URLs are being looked up: try again", retry_after=1.0)
        self._searching += 1
        try:
            return await self._search(guests, request, shown)
        finally:
            self._searching -= 1

    async def _search(self, guests: Guests, request: web.Request, shown: str) -> str:
        begun = time.monotonic()
        # First in a listing of the last second: strangers can ask for this.
        for earliest in (begun - RECENT_SECONDS, begun):
            for number, info in enumerate(await guests.listed_since(earliest)):
                if number % _PAUSE_EACH == 0:
                    await asyncio.sleep(0)
                marks = read_marks(info.labels)
                if marks is not None and marks.secure:
                    token = self._tokens.envd_token(info.sandbox_id)
                    if _same(shown, _signature(request, token)):
                        return info.sandbox_id
        raise ApiError(401, "invalid signature")


def check_signature(request: web.Request, token: str) -> None:
    """Check the signature of a file's URL.

    Raises:
        ApiError: It is missing, wrong or over.
    """
    shown, expires = request.query.get("signature", ""), request.query.get("signature_expiration", "")
    if not shown:
        raise ApiError(401, "missing signature query parameter")
    if not _same(shown, _signature(request, token)):
        raise ApiError(401, "invalid signature")
    if expires and (decimal(expires, _LATEST) or 0) < time.time():
        raise ApiError(401, "signature is already expired")


def _signature(request: web.Request, token: str) -> str:
    query = request.query
    operation = _OPERATIONS.get(request.method, "")
    expires = query.get("signature_expiration", "")
    return file_signature(query.get("path", ""), operation, query.get("username", ""), token, expires)


def requested_user(request: web.Request) -> str:
    """Return whom a request is to be done as: its query says it, or the name before the colon of its Basic header."""
    kind, _, credentials = request.headers.get("Authorization", "").partition(" ")
    named = request.query.get("username", "")
    if kind.lower() != "basic" or named:
        return named
    try:
        return base64.b64decode(credentials).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        raise ApiError(401, "the header Authorization is malformed") from None


def _same(shown: str, token: str) -> bool:
    return hmac.compare_digest(shown.encode(), token.encode())
