"""Checks the vendor's signatures of requests (ACS3-HMAC-SHA256), written from its documentation."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from datetime import datetime
from urllib.parse import quote

from aiohttp import web

SKEW_SECONDS = 900
_AUTHORIZATION = re.compile(r"ACS3-HMAC-SHA256 Credential=([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]{64})")


async def fault_of(request: web.Request, keys: dict[str, str], clock: float = 0.0) -> str:
    """Return the code with which a request is refused, empty if it is signed with one of the keys."""
    found = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
    if found is None or found[1] not in keys:
        return "InvalidAccessKeyID"
    when = datetime.fromisoformat(request.headers["x-acs-date"]).timestamp()
    if abs(time.time() + clock - when) > SKEW_SECONDS:
        return "InvalidTimeStamp.Expired"
    body = await request.read()
    digest = hashlib.sha256(body).hexdigest()
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(request.query.items()))
    names = found[2].split(";")
    headers = "".join(f"{name}:{request.headers[name].strip()}\n" for name in names)
    canonical = f"{request.method}\n{request.raw_path.partition('?')[0]}\n{query}\n{headers}\n{found[2]}\n{digest}"
    text = f"ACS3-HMAC-SHA256\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    expected = hmac.new(keys[found[1]].encode(), text.encode(), hashlib.sha256).hexdigest()
    signed = {"host", "x-acs-date", "x-acs-content-sha256", "x-acs-action", "x-acs-signature-nonce"} <= set(names)
    matches = signed and request.headers["x-acs-content-sha256"] == digest
    return "" if matches and hmac.compare_digest(expected, found[3]) else "SignatureNotMatch"


def _quoted(text: str) -> str:
    return quote(text, safe="~")
