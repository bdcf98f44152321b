"""Where control groups are mounted, where this process is in them, and what their files say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mount:
    """One tree of groups: where it is seen, which part of it, and what it was mounted with."""

    point: Path
    root: str
    options: frozenset[str]

    def place(self, group: str) -> Path:
        """Give a group's directory; a container sees only the part of the tree that is its own."""
        inner = os.path.relpath(group, self.root)
        return self.point if inner.startswith("..") else self.point / inner


def mounts(kind: str) -> Iterator[Mount]:
    """Give the trees of a kind, `cgroup` or `cgroup2`. See proc(5), /proc/[pid]/mountinfo."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        first, _, last = line.partition(" - ")
        fields, (found, _, options) = first.split(), last.split(" ", 2)
        if found == kind:
            yield Mount(Path(fields[4]), fields[3], frozenset(options.split(",")))


def own_groups() -> dict[str, str]:
    """Give this process's groups by controller; that of version 2 by the empty name. See cgroups(7)."""
    found: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            found[name] = path
    return found


def number(file: Path, key: str = "") -> int:
    """Read a file's number, or that of the line with a key; 0 where there is none."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        name, _, value = line.rpartition(" ")
        if name == key and value.isdigit():
            return int(value)
    return 0
