"""The mounts of control groups, this process's place in them, and their files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mount:
    """One mounted tree of groups: the mount point, the visible part, and the mount options."""

    point: Path
    root: str
    options: frozenset[str]

    def place(self, group: str) -> Path:
        """Return a group's directory; a container sees only the part of the tree that is its own."""
        inner = os.path.relpath(group, self.root)
        return self.point if inner.startswith("..") else self.point / inner


def mounts(filesystem: str) -> Iterator[Mount]:
    """Yield the trees of a file system type, `cgroup` or `cgroup2` (proc(5), /proc/[pid]/mountinfo)."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        first, _, last = line.partition(" - ")
        fields, (type_, _, options) = first.split(), last.split(" ", 2)
        if type_ == filesystem:
            yield Mount(Path(fields[4]), fields[3], frozenset(options.split(",")))


def own_groups() -> dict[str, str]:
    """Return this process's groups by controller; that of version 2 by the empty name (cgroups(7))."""
    groups: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            groups[name] = path
    return groups


def number(file: Path, key: str = "") -> int:
    """Read a file's number, or that of the line with a key; 0 if there is none."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        name, _, value = line.rpartition(" ")
        if name == key and value.isdigit():
            return int(value)
    return 0
