"""Names and secrets of sandboxes as E2B's clients know them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final

PREFIX: Final = "sb_"
_PUBLIC: Final = re.compile(r"[a-z0-9]{1,60}")


def public_id(sandbox_id: str) -> str:
    """Return a sandbox's id without what cannot be in the name of a host."""
    return sandbox_id.removeprefix(PREFIX)


def mesh_id(name: str) -> str | None:
    """Return the mesh's id of a sandbox for that of E2B's clients, None where it has another form."""
    return PREFIX + name if _PUBLIC.fullmatch(name) else None


class TokenMaker:
    """Makes the tokens of sandboxes: the same ones at any time, from the mesh's secret."""

    def __init__(self, secret: str) -> None:
        self._key = hashlib.sha256(b"sandmesh e2b\0" + secret.encode()).digest()

    def envd_token(self, sandbox_id: str) -> str:
        """Return the token that a client shows to a secured sandbox's files and processes."""
        return self._make("envd", sandbox_id)

    def traffic_token(self, sandbox_id: str) -> str:
        """Return the token that a client shows to a sandbox's ports where they are not public."""
        return self._make("traffic", sandbox_id)

    def _make(self, purpose: str, sandbox_id: str) -> str:
        return hmac.new(self._key, f"{purpose}\0{sandbox_id}".encode(), hashlib.sha256).hexdigest()


def file_signature(path: str, operation: str, user: str, token: str, expires: str) -> str:
    """Return the signature of a file's URL, as E2B's clients compute it from a sandbox's token."""
    text = f"{path}:{operation}:{user}:{token}" + (f":{expires}" if expires else "")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return "v1_" + digest.rstrip("=")
