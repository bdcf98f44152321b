"""Who an RPC is for, and what is theirs.

The principal goes with the work that is done for it: down into services of the same process by context, to others as
signed metadata (`sandmeshd.auth.service_identity`). Work that a service does on its own account is done as SERVICE.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from sandmesh.errors import PermissionDenied

Scope = Literal["service", "admin", "user"]

ANONYMOUS = "anonymous-"
EVERYBODY = "anonymous"
"""The user that sessions without one count against: they cannot be distinguished."""
_PREFIX = 32


@dataclass(frozen=True)
class Principal:
    """Who a request is for: a service of the mesh, an administrator, or one user."""

    scope: Scope
    user_id: str = ""
    token_id: str = ""
    private_network: bool = False
    """Whether a user's grants may name hosts that are not public."""
    read_only: bool = False
    """Whether it may send only requests without side effects; the gateway refuses the others."""
    sandbox_id: str = ""
    """The one sandbox that it may use, a user's principal without a user; empty: not limited to one."""
    project: str = ""
    """The project that it administers, a user's principal without a user; empty: it administers none."""
    door: bool = False
    """Whether a door of the mesh acts for it, which may set the door's own labels."""

    def owns(self, session_key: str, sandbox_id: str = "", project: str = "") -> bool:
        """Return whether a sandbox of a session and project is the principal's; one in a pool has no user."""
        if self.sandbox_id:
            return sandbox_id == self.sandbox_id
        if self.project:
            return project == self.project
        return session_key.startswith(self.session_prefix)

    @property
    def scope_name(self) -> str:
        """What its token allows, as people name it."""
        return "project-admin" if self.project else self.scope

    @property
    def only_public(self) -> bool:
        """Whether the principal's sandboxes reach only public addresses, whatever they name."""
        return self.scope == "user" and not self.private_network

    @cached_property
    def session_prefix(self) -> str:
        """What the keys of all sessions begin with that are the principal's."""
        return user_key(self.user_id) if self.scope == "user" else ""


SERVICE = Principal("service")
ADMIN = Principal("admin")

# A request's own value, as the ids that its log lines carry: nothing is shared between requests.
_current: ContextVar[Principal] = ContextVar("sandmesh_caller", default=SERVICE)


def current_principal() -> Principal:
    """Return the principal of the current request."""
    return _current.get()


@contextmanager
def acting_for(principal: Principal) -> Generator[None]:
    """Act for a principal within the block."""
    token = _current.set(principal)
    try:
        yield
    finally:
        _current.reset(token)


def acting_user(user_id: str) -> str:
    """Return the user that a request is for, where it names one or none.

    Whether a user belongs to the project that a principal administers is checked where projects are known.
    Ids that begin with `anonymous-` are those of clients that name no user: a user's are the user's.

    Raises:
        PermissionDenied: It names another user than the principal's.
    """
    principal = current_principal()
    if principal.scope != "user" or principal.project:
        return user_id
    if principal.sandbox_id:
        raise PermissionDenied(f"the token is only for the sandbox {principal.sandbox_id}", {"field": "user_id"})
    if user_id not in ("", principal.user_id) and not user_id.startswith(ANONYMOUS):
        message = f"the token is for user {principal.user_id!r} only: name that user, or none"
        raise PermissionDenied(message, {"field": "user_id"})
    return principal.user_id


def counted_user(user_id: str) -> str:
    """Return the user that a session's user counts as in quotas."""
    return EVERYBODY if not user_id or user_id.startswith(ANONYMOUS) else user_id


def user_key(user_id: str) -> str:
    """Return the key of a user: the first half of the keys of the user's sessions."""
    return _digest(user_id)


def user_of(session_key: str) -> str:
    """Return the key of the user whose session a key is of."""
    return session_key[:_PREFIX]


def session_key(user_id: str, session_id: str) -> str:
    """Return the key of a session's leases and records: it suffices to tell whether it is a user's."""
    return user_key(user_id) + _digest(user_id, session_id)


def workspace_key(session_key: str, slot: str) -> str:
    """Name what a slot's workspace is saved under: two slots never meet, whatever characters they have."""
    return f"{session_key}.{hashlib.sha256(slot.encode()).hexdigest()[:32]}"


def profile_key(user_id: str, name: str) -> str:
    """Name what a user's browser profile is saved under."""
    return f"profiles/{user_key(user_id)}.{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _digest(*parts: str) -> str:
    # Each part's length goes before it: ("a", "bc") and ("ab", "c") differ whatever characters they have.
    encoded = [part.encode() for part in parts]
    return hashlib.sha256(b"".join(f"{len(part)}:".encode() + part for part in encoded)).hexdigest()[:_PREFIX]
