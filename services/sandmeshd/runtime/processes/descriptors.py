"""How many file descriptors a process of a mesh may have, and what that allows.

The usual soft limit, 1,024, is for programs that use select(2); a mesh does not, and raises it towards the hard one, as
https://0pointer.net/blog/file-descriptor-limits.html recommends. No further than `MAX_LIMIT`: sandboxes inherit it, and
programs that close every possible descriptor take long with millions.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from typing import Final

from sandmesh.errors import RuntimeUnavailable

MAX_LIMIT: Final = 65_536
FIX: Final = (
    "raise the hard limit: LimitNOFILE= of its systemd service, --ulimit nofile= of its container, or `ulimit -n`"
)
_OF_MESH: Final = 64
_PER_SANDBOX: Final = 4
"""Measured: a mesh with a limit of 1,024 ran out at 242 sandboxes."""
PEERS_PART: Final = 4
"""Which part of an address's connections one peer may have."""
_CONNECTIONS_PART: Final = 8
_FEWEST_CONNECTIONS: Final = 64


def attainable_limit() -> int:
    """Return the limit of a process after `set_process_limits`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_LIMIT
    return max(soft, MAX_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MAX_LIMIT))


def set_process_limits() -> None:
    """Raise this process's soft limit as far as a mesh needs and the hard limit allows; it is never lowered.

    It leaves no core either: what is secret is in its memory.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (attainable_limit(), hard))


def sandboxes_within(limit: int) -> int:
    """Return about how many sandboxes a mesh can have open with a limit of descriptors."""
    return max(0, limit - _OF_MESH) // _PER_SANDBOX


def connections_allowed() -> int:
    """Return how many simultaneous connections an address accepts, so that most descriptors stay free."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(_FEWEST_CONNECTIONS, (MAX_LIMIT if soft == resource.RLIM_INFINITY else soft) // _CONNECTIONS_PART)


class HeldDescriptors:
    """Descriptors that are held in reserve, and released for work that must be possible without any free one."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self.hold()

    @property
    def held(self) -> int:
        """How many it holds now."""
        return len(self._held)

    def hold(self) -> None:
        """Hold as many as it is to, as far as there are free ones."""
        with suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> None:
        """Leave them to others."""
        while self._held:
            os.close(self._held.pop())


def are_free(count: int) -> bool:
    """Return whether this process may open so many more descriptors, by opening them."""
    probe = HeldDescriptors(count)
    try:
        return probe.held == count
    finally:
        probe.release()


def lack_of_descriptors(error: BaseException | None) -> RuntimeUnavailable | None:
    """Return the error to report where there were no free descriptors; None for any other exception."""
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = f"its limit is {limit}, enough for about {sandboxes_within(limit)} sandboxes"
    of = "a process of the mesh" if error.errno == errno.EMFILE else "the machine"
    return RuntimeUnavailable(f"{of} has no free file descriptors ({allowed}): {FIX}", {"fix": FIX})
