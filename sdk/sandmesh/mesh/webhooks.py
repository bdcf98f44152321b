"""Webhooks: signatures of requests that tell of a mesh's events, by the Standard Webhooks specification.

A receiver checks the bytes that it got before it reads them: `verify(secret, headers, body)`.
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final, cast

from sandmesh.errors import InvalidArgument, Unauthenticated

PREFIX: Final = "whsec_"
TOLERANCE_SECONDS: Final = 300
_KEY_BYTES: Final = 32
_SHORTEST, _LONGEST = 24, 64


def new_secret() -> str:
    """Return a secret for the signatures of one webhook."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def sign(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`; `timestamp` is in seconds since 1970.

    Raises:
        InvalidArgument: The secret is not `whsec_` and 24 to 64 bytes in base64.
    """
    signed = b".".join([event_id.encode(errors="replace"), str(timestamp).encode(), body])
    return "v1," + base64.b64encode(hmac.new(_key(secret), signed, hashlib.sha256).digest()).decode()


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, *, tolerance: float = TOLERANCE_SECONDS
) -> dict[str, Any]:
    """Return the event of a request that was signed with the secret within the last `tolerance` seconds.

    The event is in CloudEvents' JSON format: `id`, `type`, `subject` (the sandbox), `time`, `data`. An event may arrive
    more than once, always with the same `id`.

    Raises:
        Unauthenticated: The signature is missing, old or another; answer with status 401.
        InvalidArgument: The secret has another form.
    """
    found = {name.lower(): value for name, value in headers.items()}
    event_id, moment = found.get("webhook-id", ""), found.get("webhook-timestamp", "")
    if not (
        moment.isascii() and moment.isdecimal() and len(moment) < 16 and abs(time.time() - int(moment)) <= tolerance
    ):
        raise Unauthenticated("the request has no timestamp of these minutes: it may be an old one, sent again", {})
    expected = sign(secret, event_id, int(moment), body).encode()
    shown = found.get("webhook-signature", "").encode(errors="replace").split()
    if not any(hmac.compare_digest(expected, one) for one in shown):
        raise Unauthenticated("the request was not signed with this secret", {})
    try:
        event: object = json.loads(body)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise InvalidArgument("the request's body is not an event", {})
    return cast("dict[str, Any]", event)


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not _SHORTEST <= len(key) <= _LONGEST:
        message = (
            f"a webhook's secret is {PREFIX} and {_SHORTEST} to {_LONGEST} bytes in base64: make one by new_secret()"
        )
        raise InvalidArgument(message, {"argument": "secret"})
    return key
