"""Paths as E2B's clients write them: relative to /home/user, which is the sandbox's workspace."""

from __future__ import annotations

import posixpath
import re
from typing import Final

from sandmeshd.facades.e2b.errors import ApiError

HOME: Final = "/home/user"
WORKSPACE: Final = "/workspace"
PRIVATE_HOME: Final = "/home/sandbox"
"""What the mesh keeps of a sandbox beside its workspace."""

USERS: Final = frozenset({"", "user", "root"})
"""What is asked for as root is done as the sandbox's only user."""

_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_MOVED: Final = {"/etc/mcp-gateway/.token": f"{WORKSPACE}/.mcp-gateway/token"}


def inside(path: str) -> str:
    """Return the path in the sandbox.

    Raises:
        ApiError: It has a zero byte.
    """
    if "\0" in path:
        raise ApiError(400, "a path has no zero byte")
    expanded = HOME + path[1:] if path == "~" or path.startswith("~/") else path
    whole = posixpath.normpath(posixpath.join(HOME, expanded))
    whole = "/" + whole.lstrip("/")
    if whole == HOME or whole.startswith(f"{HOME}/"):
        return WORKSPACE + whole[len(HOME) :]
    return _MOVED.get(whole, whole)


def outside(path: str) -> str:
    """Return a path of the sandbox as clients know it."""
    found = path == WORKSPACE or path.startswith(f"{WORKSPACE}/")
    return HOME + path[len(WORKSPACE) :] if found else path


def in_workspace(path: str) -> bool:
    """Return whether a path of the sandbox is below its workspace."""
    return path == WORKSPACE or path.startswith(f"{WORKSPACE}/")


def check_user(name: str, *, any_user: bool) -> None:
    """Check whom a request is to be done as.

    Raises:
        ApiError: It is not a name, or not the sandbox's user where that is the only one.
    """
    if any_user and name and not _USER.fullmatch(name):
        raise ApiError(401, f"{name!r} is not the name of a user")
    if not any_user and name not in USERS:
        raise ApiError(401, f"user '{name}' cannot be used: a sandbox has one here, who answers to 'user' and 'root'")
