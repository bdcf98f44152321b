"""The account in an image that user code has: as USER of an image or `root` of a sandbox names it."""

from __future__ import annotations

import os
import resource

from sandmeshd.agent.userland.core import isolation, syscalls

TYPE_CHECKING = False  # as in syscalls; dataclasses and pathlib are slow imports
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

PLAIN_ID: Final = 1000
"""The uid and gid of user code that is not to be root in an image whose user is root."""
_LARGEST: Final = 1 << 20
_MOST_ID: Final = 65_535


class Account:
    """A user of an image, which user code becomes."""

    def __init__(self, uid: int, gid: int, name: str, home: str) -> None:
        self.uid = uid
        self.gid = gid
        self.groups: list[int] = []
        """The supplementary gids."""
        self.name = name
        self.home = home
        self.in_container = False
        """Whether a container's runtime keeps it apart, without separate namespaces."""

    def become(self) -> None:
        """Take its ids for good; root of the user namespace keeps its capabilities, others lose them."""
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)

    def settle(self, seccomp: bytes) -> None:
        """Become user code of this account, with its filter of system calls."""
        if self.uid == 0:
            self.become()
            isolation.be_limited_root(seccomp)
        else:
            syscalls.bound_capabilities()
            self.become()
            isolation.restrict(seccomp)
            syscalls.clear_capabilities()

    @staticmethod
    def limit_namespace(processes: int) -> None:
        """Limit the processes of all users together of the user namespace that this process is about to make."""
        if processes:
            # The kernel keeps it with the namespace: root there may raise it or leave it, only for itself.
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))

    def variables(self) -> dict[str, str]:
        """Return the environment variables that the account has where nothing else sets them."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def find_account(user: str, root: bool | None, directory: str = "/etc") -> Account:
    """Return the account that an image's USER names: `name`, `uid`, or either with `:group`.

    Args:
        user: What the image says; empty for root.
        root: Whether user code is to be root; None: as the image says.
        directory: Where `passwd` and `group` are. Neither has to be there.

    Raises:
        ValueError: The image has no user or group of that name.
    """
    if root:
        user = "0:0"
    name, _, group = user.partition(":")
    users = list(_lines(f"{directory}/passwd", 7))
    found = _user(users, name or "0")
    if found.uid == 0 and root is False:
        found, group = _user(users, str(PLAIN_ID)), ""
    groups = list(_lines(f"{directory}/group", 4))
    if group:
        found.gid = _group(groups, group)
        return found
    found.groups = sorted({int(line[2]) for line in groups if found.name in line[3].split(",") and _is_id(line[2])})
    return found


def _user(users: list[list[str]], wanted: str) -> Account:
    column = 2 if wanted.isdecimal() else 0
    line = next((line for line in users if line[column] == wanted and _is_id(line[2]) and _is_id(line[3])), None)
    if line is not None:
        return Account(int(line[2]), int(line[3]), line[0], line[5] or "/")
    if not _is_id(wanted):
        raise ValueError(f"the image has no user {wanted!r}, which its USER names")
    uid = int(wanted)
    return Account(uid, uid, "root" if uid == 0 else str(uid), "/root" if uid == 0 else "/")


def _group(groups: list[list[str]], wanted: str) -> int:
    if _is_id(wanted):
        return int(wanted)
    for line in groups:
        if line[0] == wanted and _is_id(line[2]):
            return int(line[2])
    raise ValueError(f"the image has no group {wanted!r}, which its USER names")


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= _MOST_ID


def _lines(path: str, fields: int) -> Iterator[list[str]]:
    """Yield the lines of a file of the image's that have so many fields; a file that is not there has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        data = os.read(descriptor, _LARGEST)
    except OSError:
        return
    finally:
        os.close(descriptor)
    for line in data.decode("utf-8", "replace").splitlines():
        parts = line.split(":")
        if len(parts) == fields:
            yield parts
