"""The names of what is rented, and of sessions."""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import b32encode

_SHORT = re.compile(r"[A-Za-z0-9_-]{1,49}")
"""Ids that fit into a session's, which has at most 64 characters."""

_NONCE_BYTES = 7


def hashed(text: str, length: int = 26) -> str:
    """Return letters and digits that stand for a text."""
    return b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()[:length]


def mesh_prefix(prefix: str, mesh_id: str) -> str:
    """Return what the names of a mesh's resources begin with."""
    return f"{prefix}-{hashed(mesh_id, 12)}-"


def new_session_id(sandbox_id: str) -> str:
    """Return an id for a session of a sandbox that cannot be guessed, and that no session had before.

    A session's id is used once: a link that comes late must not make the vendor start, and bill, another.
    """
    nonce = b32encode(secrets.token_bytes(_NONCE_BYTES)).decode().lower().rstrip("=")
    return f"{_owner(sandbox_id)}-{nonce}"


def _owner(sandbox_id: str) -> str:
    return f"s-{sandbox_id}" if _SHORT.fullmatch(sandbox_id) else f"h-{hashed(sandbox_id)}"


def sandbox_id_of(session_id: str) -> str:
    """Return the sandbox that a session is of, empty where the id of that is too long to stand in it."""
    owner, _, nonce = session_id.rpartition("-")
    return owner[2:] if owner.startswith("s-") and nonce else ""
