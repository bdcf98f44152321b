"""Who a session belongs to, as keys that no choice of ids can make meet."""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass

from sandmesh.errors import InvalidArgument

_LONGEST = 255


@dataclass(frozen=True)
class Identity:
    """The ids of one session, as their user chose them."""

    user_id: str
    session_id: str

    @property
    def session_key(self) -> str:
        """The key of its leases and records: a hash of both ids with their lengths."""
        return _digest(self.user_id, self.session_id)

    @property
    def user_key(self) -> str:
        """The key of its user's list of sessions."""
        return user_key(self.user_id)


def identity(user_id: str, session_id: str) -> Identity:
    """Check ids and give what they name; an empty one is made up, so that nobody else can name it.

    Raises:
        InvalidArgument: An id is longer than 255 characters.
    """
    for field, value in (("user_id", user_id), ("session_id", session_id)):
        if len(value) > _LONGEST:
            raise InvalidArgument(f"{field} has at most {_LONGEST} characters", {"field": field})
    return Identity(user_id or _made_up("anonymous-"), session_id or _made_up("session-"))


def user_key(user_id: str) -> str:
    """Give the key of a user's list of sessions."""
    return _digest(user_id)


def _digest(*parts: str) -> str:
    # Each part's length goes before it: ("a", "bc") and ("ab", "c") differ whatever characters they have.
    encoded = [part.encode() for part in parts]
    return hashlib.sha256(b"".join(f"{len(part)}:".encode() + part for part in encoded)).hexdigest()


def _made_up(prefix: str) -> str:
    return prefix + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26]
