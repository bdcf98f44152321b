"""Control groups, version 1: a tree a controller. See the kernel's Documentation/admin-guide/cgroup-v1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sandmeshd.drivers.bubblewrap.cgroups.cgroups import CgroupUsage, GroupLimits
from sandmeshd.drivers.bubblewrap.cgroups.files import mounts, number, own_groups

CONTROLLERS = ("memory", "cpu", "pids")
PERIOD_MICROSECONDS = 100_000
LONGEST_PERIOD = 1_000_000
SMALLEST_QUOTA = 1_000
MEMORY_AND_SWAP = "memory.memsw.limit_in_bytes"


class VersionOne:
    """The trees that are mounted on this machine."""

    version = "cgroup v1"
    events = "memory.oom_control"

    def __init__(self) -> None:
        """Read nothing yet."""
        self._swap = False

    def bases(self) -> Iterator[Mapping[str, Path]]:
        """Yield this process's own group of each controller."""
        own = own_groups()
        found: dict[str, Path] = {}
        for mount in mounts("cgroup"):
            for controller in CONTROLLERS:
                if controller in mount.options and controller in own:
                    found[controller] = mount.place(own[controller])
        self._swap = (found.get("memory", Path("/nonexistent")) / MEMORY_AND_SWAP).exists()
        if found:
            yield found

    def prepare(self, folder: Path, controllers: tuple[str, ...]) -> None:
        """Return immediately: each tree has its controller everywhere."""

    def settings(self, limits: GroupLimits) -> Iterator[tuple[str, str, str]]:
        """Yield what enforces the limits: controller, file, text."""
        if limits.memory_bytes:
            yield "memory", "memory.limit_in_bytes", str(limits.memory_bytes)
            if self._swap:
                yield "memory", MEMORY_AND_SWAP, str(limits.memory_bytes)
        if limits.cpu_millis:
            quota, period = quota_and_period(limits.cpu_millis)
            yield "cpu", "cpu.cfs_period_us", str(period)
            yield "cpu", "cpu.cfs_quota_us", str(quota)
        if limits.pids:
            yield "pids", "pids.max", str(limits.pids)

    def usage(self, folders: Mapping[str, Path]) -> CgroupUsage:
        """Read what a group used."""
        nowhere = Path("/nonexistent")
        memory, cpu, pids = (folders.get(name, nowhere) for name in CONTROLLERS)
        return CgroupUsage(
            memory_bytes=number(memory / "memory.usage_in_bytes"),
            processes=number(pids / "pids.current"),
            throttled_periods=number(cpu / "cpu.stat", "nr_throttled"),
            out_of_memory_kills=number(memory / self.events, "oom_kill"),
        )


def quota_and_period(cpu_millis: int) -> tuple[int, int]:
    """Return the microseconds of processor time in each period, and the period, which is longer for a small quota."""
    period = PERIOD_MICROSECONDS if cpu_millis >= 10 else LONGEST_PERIOD
    return max(SMALLEST_QUOTA, cpu_millis * period // 1000), period
