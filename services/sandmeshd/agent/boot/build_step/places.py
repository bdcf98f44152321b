"""What a command of a build sees beside its image: caches, files of other images, secrets, memory.

Where a place is not there, it is made for the command, and removed after it.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sandmeshd.agent.boot.image import mounts
from sandmeshd.agent.userland.core import isolation, syscalls

_SHUT: Final = syscalls.MS_NOSUID | syscalls.MS_NODEV
_SCRATCH: Final = 1 << 30


class Places:
    """The mounts of one command."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        """Of the step's own, which commands do not see."""
        self._made: list[str] = []
        self._mounted: list[str] = []

    def mount_all(self, wanted: Sequence[Mapping[str, Any]]) -> None:
        """Mount what a command wants to see.

        Raises:
            OSError: It is not there, or cannot be mounted.
        """
        for number, mount in enumerate(wanted):
            target = mount["target"]
            if mount["kind"] == "memory":
                self._make_directory(target)
                isolation.mount_memory(target, "1777", mount["size"] or _SCRATCH)
            elif mount["kind"] == "secret":
                self._secret(number, mount)
            else:
                if mount["kind"] == "cache":
                    os.chown(mount["source"], mount["uid"], mount["gid"])
                    os.chmod(mount["source"], mount["mode"])
                self._bind(mount["source"], target, writable=mount["writable"])
            self._mounted.append(target)

    def clear(self) -> None:
        """Unmount everything, and remove the places that were made."""
        for target in reversed(self._mounted):
            mounts.detach(target)
        for path in reversed(self._made):
            with suppress(OSError):
                os.unlink(path) if os.path.isfile(path) else os.rmdir(path)

    def _secret(self, number: int, mount: Mapping[str, Any]) -> None:
        folder = f"{self._folder}/secrets"
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o711)
            isolation.mount_memory(folder, "0711", _SCRATCH)
        path = f"{folder}/{number}"
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(mount["value"])
        os.chown(path, mount["uid"], mount["gid"])
        os.chmod(path, mount["mode"])
        self._bind(path, mount["target"], writable=False)

    def _bind(self, source: str, target: str, *, writable: bool) -> None:
        if os.path.isdir(source):
            self._make_directory(target)
        else:
            self._make_directory(posixpath.dirname(target))
            if not os.path.lexists(target):
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
                self._made.append(target)
        mount = mounts.detached(source, with_others=True)
        attributes = mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NODEV
        mounts.restrict(mount, attributes | (0 if writable else mounts.MOUNT_ATTR_RDONLY))
        mounts.attach(mount, target)

    def _make_directory(self, path: str) -> None:
        missing: list[str] = []
        while path not in {"", "/"} and not os.path.isdir(path):
            missing.append(path)
            path = posixpath.dirname(path)
        for each in reversed(missing):
            os.mkdir(each, 0o755)
            self._made.append(each)
