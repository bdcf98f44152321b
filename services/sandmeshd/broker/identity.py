"""Owners of sessions, as keys that no choice of ids can make collide."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from functools import cached_property

from sandmesh.errors import InvalidArgument
from sandmeshd.auth.principal import ANONYMOUS, acting_user, session_key, user_key

_LONGEST = 255


@dataclass(frozen=True)
class SessionIdentity:
    """The ids of one session, as their user chose them."""

    user_id: str
    session_id: str
    named: bool = True
    """Whether its user chose both ids, and so can come back to it."""

    @cached_property
    def session_key(self) -> str:
        """The key of its leases and records."""
        return session_key(self.user_id, self.session_id)

    @cached_property
    def user_key(self) -> str:
        """The key of its user's list of sessions."""
        return user_key(self.user_id)


def identity(user_id: str, session_id: str) -> SessionIdentity:
    """Check ids and return the identity that they name; an empty one is generated, so that no other client can name it.

    The user of a caller that is a user is that one.

    Raises:
        InvalidArgument: An id is longer than 255 characters.
        PermissionDenied: They name another user than the caller.
    """
    for field, value in (("user_id", user_id), ("session_id", session_id)):
        if len(value) > _LONGEST:
            raise InvalidArgument(f"{field} has at most {_LONGEST} characters", {"field": field})
    named = bool(user_id and session_id) and not user_id.startswith(ANONYMOUS)
    user_id = acting_user(user_id)
    return SessionIdentity(user_id or _made_up(ANONYMOUS), session_id or _made_up("session-"), named)


def _made_up(prefix: str) -> str:
    return prefix + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26]
