"""Control groups, version 2: one tree. See the kernel's Documentation/admin-guide/cgroup-v2.rst.

An ordinary user may create groups in a part of the tree that is delegated to them: in a systemd scope or service with
`Delegate=yes`, or below `user@<uid>.service`, where `systemd-run --user --scope` puts programs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandmeshd.drivers.bubblewrap.cgroups.cgroups import CgroupUsage, GroupLimits
from sandmeshd.drivers.bubblewrap.cgroups.files import mounts, number, own_groups
from sandmeshd.drivers.bubblewrap.cgroups.v1 import CONTROLLERS, quota_and_period


class VersionTwo:
    """The tree that is mounted on this machine."""

    version = "cgroup v2"
    events = "memory.events"

    def bases(self) -> Iterator[Mapping[str, Path]]:
        """Yield this process's own group and those above it that have controllers and are writable."""
        own = own_groups().get("")
        for mount in mounts("cgroup2"):
            if own is None:
                return
            start = mount.place(own)
            for place in (start, *start.parents):
                if not place.is_relative_to(mount.point):
                    break
                here = _words(place / "cgroup.controllers")
                usable = {name: place for name in CONTROLLERS if name in here}
                if usable and os.access(place, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK):
                    yield usable

    def prepare(self, folder: Path, controllers: tuple[str, ...]) -> None:
        """Enable these controllers for the groups in a folder, which the kernel refuses if the folder has processes."""
        control = folder / "cgroup.subtree_control"
        missing = [name for name in controllers if name not in _words(control)]
        if missing:
            control.write_text(" ".join(f"+{name}" for name in missing))

    def settings(self, limits: GroupLimits) -> Iterator[tuple[str, str, str]]:
        """Yield what enforces the limits: controller, file, text."""
        if limits.memory_bytes:
            yield "memory", "memory.max", str(limits.memory_bytes)
            if Path("/proc/swaps").read_text().count("\n") > 1:
                yield "memory", "memory.swap.max", "0"
        if limits.cpu_millis:
            quota, period = quota_and_period(limits.cpu_millis)
            yield "cpu", "cpu.max", f"{quota} {period}"
        if limits.pids:
            yield "pids", "pids.max", str(limits.pids)

    def usage(self, folders: Mapping[str, Path]) -> CgroupUsage:
        """Read what a group used."""
        nowhere = Path("/nonexistent")
        memory, cpu, pids = (folders.get(name, nowhere) for name in CONTROLLERS)
        return CgroupUsage(
            memory_bytes=number(memory / "memory.current"),
            processes=number(pids / "pids.current"),
            throttled_periods=number(cpu / "cpu.stat", "nr_throttled"),
            out_of_memory_kills=number(memory / self.events, "oom_kill"),
        )


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
