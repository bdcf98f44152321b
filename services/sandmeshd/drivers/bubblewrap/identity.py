"""The uids that sandboxes' processes have on the host, never 0.

Where the driver runs as root or its user has subordinate uids, each sandbox has its own uid: the kernel counts
some things by uid, and what one sandbox takes of them its neighbours do not lack. A uid is leased by a lock on a file
of that name. The sandbox's PID 1 inherits the descriptor, so that the lease lasts exactly as long as PID 1 does,
whatever becomes of the driver, and all meshes of the machine, or of the user, keep clear of each other.

subprocess's `user` is not used for it: it makes Python fork where it otherwise uses vfork, and a fork beside gRPC's
threads runs gRPC's fork handlers, after which the child crashes.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable, SandboxStartFailed
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import remove_groups
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.records import Folder
from sandmeshd.runtime.paths import default_runtime_directory, make_private

SET_UID = (
    "import os, sys; uid = int(sys.argv[1]); os.setgroups([]); os.setgid(uid); os.setuid(uid); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)
"""Replaces setpriv if the machine has none; it takes 12 ms more."""

LEASES = "uids"
"""The directory whose locked files are the leased uids, in the runtime directory of the user who has the range."""

SETTING = "SANDMESH_SANDBOX_UIDS"
_USERS, _SUBORDINATE = ("passwd", "group"), ("subuid", "subgid")
"""Files of /etc."""


def sandbox_identity(settings: BubblewrapSettings, uid: int = 0) -> list[str]:
    """Return the start of a command line that runs the rest as a sandbox's uid; empty unless this user is root.

    Without `uid` it is the one that the mesh's sandboxes share.
    """
    if os.geteuid() != 0:
        return []
    user, group = (uid, uid) if uid else (settings.host_uid, settings.host_gid)
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin:/usr/sbin:/sbin")
    if setpriv is None:
        return [sys.executable, "-I", "-S", "-c", SET_UID, str(user)]
    return [setpriv, f"--reuid={user}", f"--regid={group}", "--clear-groups", "--"]


@dataclass
class UidLease:
    """A sandbox's uid and gid on the host. While `lock` is open anywhere, no other sandbox of the machine gets them."""

    uid: int
    gid: int
    lock: int = -1
    """Negative for a uid that the mesh's sandboxes share."""

    @property
    def own(self) -> int:
        """The uid if it is the sandbox's own, else 0."""
        return self.uid if self.lock >= 0 else 0

    @property
    def is_subordinate(self) -> bool:
        """Whether it is the sandbox's own without the driver's being able to become it, or to own files as it."""
        return self.lock >= 0 and os.geteuid() != 0

    def close(self) -> None:
        """Close this process's copy of the lock."""
        lock, self.lock = self.lock, -1
        if lock >= 0:
            os.close(lock)


class UidLeases:
    """The uids that one driver's sandboxes get."""

    def __init__(self, settings: BubblewrapSettings) -> None:
        """Take the range from the settings.

        Raises:
            RuntimeUnavailable: It has uids or gids of somebody else.
        """
        self._shared = settings.host_uid, settings.host_gid
        self._range = settings.uid_range
        if self._range:
            if os.geteuid() == 0:
                check_range(self._range, settings.sandbox_uid)
            make_private(default_runtime_directory(), 0o711 if os.geteuid() == 0 else 0o700)
            make_private(_directory(), 0o700)
            for file in _directory().iterdir():
                remove_unlocked(file)

    def shared(self) -> UidLease:
        """Return the uid of the mesh that its sandboxes share."""
        return UidLease(*self._shared)

    def lease(self) -> UidLease:
        """Lease a uid of the machine; where sandboxes have no separate ones, return the shared one.

        Raises:
            SandboxStartFailed: All are leased.
        """
        if not self._range:
            return self.shared()
        first = random.randrange(len(self._range))  # noqa: S311 - which one is not a secret
        for number in range(len(self._range)):
            uid = self._range[(first + number) % len(self._range)]
            lock = lock_file(_directory() / str(uid))
            if lock is not None:
                return UidLease(uid, uid, lock)
        fix = f"release sandboxes, or widen {SETTING}"
        raise SandboxStartFailed(
            f"each of the {len(self._range)} uids for sandboxes has one: {fix}", {"detail": "no uid is free"}
        )


async def release(folder: Folder) -> None:
    """Remove what a sandbox without processes has outside of its folder: its control groups, and its uid's file."""
    await remove_groups(folder)
    with suppress(FileNotFoundError, NotADirectoryError):
        remove_unlocked(_directory() / str(folder.workspace.stat().st_uid))


def _directory() -> Path:
    return default_runtime_directory() / LEASES


def lock_file(file: Path) -> int | None:
    """Lock a file, which is made where it is not there, for as long as any copy of the returned descriptor is open.

    Returns: None if somebody else has it.
    """
    while True:
        descriptor = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(file.stat(), os.fstat(descriptor)):
                return descriptor
        # It was removed between the two steps: its lock says nothing.
        os.close(descriptor)


def remove_unlocked(file: Path) -> None:
    """Remove a lock's file, unless somebody has the lock."""
    if file.exists() and (lock := lock_file(file)) is not None:
        file.unlink(missing_ok=True)
        os.close(lock)


def check_range(uids: range, shared: int, directory: Path = Path("/etc"), setting: str = SETTING) -> None:
    """Check that a range for sandboxes has no account's uid or gid.

    Raises:
        RuntimeUnavailable: It has; the error names whose, and the setting.
    """
    taken = [(range(shared, shared + 1), "SANDMESH_SANDBOX_UID")]
    for name in (*_USERS, *_SUBORDINATE):
        taken += _entries(directory / name, subordinate=name in _SUBORDINATE)
    for theirs, whose in taken:
        if theirs.start < uids.stop and uids.start < theirs.stop:
            fix = f"set {setting} to a range that is unused, or to none"
            message = f"the uids for sandboxes, {uids.start}-{uids.stop - 1}, contain that of {whose}: {fix}"
            raise RuntimeUnavailable(message, {"fix": fix})


def _entries(file: Path, *, subordinate: bool) -> Iterator[tuple[range, str]]:
    """Yield the numbers of each line and whose they are: one of passwd or group, the first and the count of subuid."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        name, *fields = line.split(":")
        numbers = fields[:2] if subordinate else [*fields[1:2], "1"]
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            first, count = map(int, numbers)
            yield range(first, first + count), f"{name} in {file}"
