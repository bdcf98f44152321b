"""The ids of sandboxes whose root is an image: 65,536 each, from the image's root on.

Where the driver runs as root, each sandbox has a range that is unique on the machine, leased by a lock as single
uids are (see `identity`). An ordinary user has one subordinate range for all sandboxes with images: only namespaces
separate them, and what the kernel counts by uid they count together.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmesh.errors import CapabilityMissing, SandboxStartFailed
from sandmeshd.drivers.bubblewrap.identity import LEASES, check_range, lock_file, remove_unlocked
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.records import Folder
from sandmeshd.runtime.paths import default_runtime_directory, make_private
from sandmeshd.runtime.user_namespaces.subordinate import find_subordinate

IDS: Final = 65_536
"""The ids of an image's users and groups: 0 to 65535."""
SETTING: Final = "SANDMESH_ROOT_UIDS"


@dataclass
class IdRange:
    """The uids and gids of one sandbox on the host; `first` is its root's."""

    first: int
    lock: int = -1
    """Open as long as the range is leased; negative for a user's one range."""

    def maps(self) -> dict[str, list[list[int]]]:
        """Return the maps of the sandbox's user namespace: lines of id inside, id outside and count.

        An ordinary user has an id there, too, above those of images: the sandbox's directories are that user's first.
        User code is in a namespace below, which lacks it.
        """
        if os.geteuid() == 0:
            return {name: [[0, self.first, IDS]] for name in ("uid_map", "gid_map")}
        own = {"uid_map": os.geteuid(), "gid_map": os.getegid()}
        return {name: [[0, self.first, IDS], [IDS, mine, 1]] for name, mine in own.items()}

    def close(self) -> None:
        """Close this process's copy of the lock."""
        lock, self.lock = self.lock, -1
        if lock >= 0:
            os.close(lock)


class IdRanges:
    """The ranges that one driver's sandboxes get."""

    def __init__(self, settings: BubblewrapSettings) -> None:
        """Take the ranges from the settings.

        Raises:
            RuntimeUnavailable: They have uids or gids of somebody else.
        """
        self._shared = settings.host_uid, settings.host_gid
        self._uids = settings.root_uid_range
        if self._uids and os.geteuid() == 0:
            check_range(self._uids, settings.sandbox_uid, setting=SETTING)
        self.lacking, self.fix = _lacking(self._uids)
        """Why there is none, and what to do about it; empty where there is one."""

    def check(self) -> None:
        """Check that there are ids.

        Raises:
            CapabilityMissing: There are none; the error has the fix.
        """
        if self.lacking:
            message = f"images need {IDS} separate ids, and {self.lacking}: {self.fix}"
            raise CapabilityMissing(message, {"needs": "images", "fix": self.fix})

    def lease(self) -> IdRange:
        """Lease a range.

        Raises:
            CapabilityMissing: There is none.
            SandboxStartFailed: All are leased.
        """
        self.check()
        if os.geteuid() != 0:
            return IdRange(self._uids.start)
        directory = make_directory()
        count = len(self._uids) // IDS
        begin = random.randrange(count)  # noqa: S311 - which one is not a secret
        for number in range(count):
            first = self._uids[(begin + number) % count * IDS]
            lock = lock_file(directory / str(first))
            if lock is not None:
                return IdRange(first, lock)
        fix = f"release sandboxes, or widen {SETTING}"
        raise SandboxStartFailed(f"each of the {count} ranges of ids has a sandbox: {fix}", {"detail": "no ids"})

    def all_maps(self) -> dict[str, list[list[int]]]:
        """Return the maps of a user namespace above those of all sandboxes; the last id is `user`."""
        uids = {"uid_map": self._shared[0], "gid_map": self._shared[1]}
        return {name: [[0, self._uids.start, self.user], [self.user, own, 1]] for name, own in uids.items()}

    @property
    def user(self) -> int:
        """The id in that namespace that no sandbox has, which what belongs to all of them gets."""
        return len(self._uids) if os.geteuid() == 0 else IDS

    def inner_maps(self, ids: IdRange) -> dict[str, list[list[int]]]:
        """Return `IdRange.maps` as seen from that namespace."""
        if os.geteuid() == 0:
            return {name: [[0, ids.first - self._uids.start, IDS]] for name in ("uid_map", "gid_map")}
        return {name: [[0, 0, IDS], [IDS, IDS, 1]] for name in ("uid_map", "gid_map")}

    def release_of(self, folder: Folder) -> None:
        """Release the ids of a sandbox without processes."""
        with suppress(FileNotFoundError, NotADirectoryError):
            self.release(folder.workspace.stat().st_uid)

    def release(self, uid: int) -> None:
        """Remove the lock's file of the range that has a uid, unless it is leased."""
        if os.geteuid() == 0 and uid in self._uids:
            remove_unlocked(make_directory() / str(uid - (uid - self._uids.start) % IDS))


def make_directory() -> Path:
    """Return the directory of the locks, which is made where it is not there."""
    make_private(default_runtime_directory(), 0o711)
    directory = default_runtime_directory() / LEASES
    make_private(directory, 0o700)
    return directory


def _lacking(uids: range) -> tuple[str, str]:
    if len(uids) >= IDS:
        return "", ""
    if os.geteuid() == 0:
        return "the user namespace of this process has not those configured", f"set {SETTING} to ids that it has"
    found = find_subordinate()
    if found.lacking:
        return found.lacking, found.fix
    user = os.geteuid()
    return f"{len(uids)} subordinate ids are granted", f"grant {IDS} in /etc/subuid and /etc/subgid to uid {user}"
