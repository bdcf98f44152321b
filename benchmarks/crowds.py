"""`python -m benchmarks.crowds [COUNT]`: what this machine makes of many forked processes, without a mesh.

A unit is what the kernel has of a sandbox of bubblewrap: four forks of an interpreter of 60 MB, the first in seven new
namespaces with some mounts, each of which copies as many pages as a sandbox's process does (10.6 MB in all), and which
then wait. Units are made, 8 at a time, while none and while COUNT others (1,000) wait, with as much memory written
right before as `density` writes before creates. The rate in the crowd, as a share of that without one, bounds what
sandboxes can reach; so does the processor time of a unit, which other work on the machine changes less.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import statistics
import struct
import time
from dataclasses import dataclass
from typing import Final

from benchmarks.density import AT_ONCE, EACH_MB, MORE, touch_memory
from benchmarks.figures import Figure
from benchmarks.forking import NAMESPACES
from benchmarks.report import arguments, machine, show

HELD: Final = 60 << 20
FIRST_KB, OTHERS_KB = 100, (5_900, 3_400, 1_300)
"""What a sandbox's first process copies; its agent, its kernel and the process that kernels are forked from."""
MOUNTS: Final = 12
ROUNDS: Final = 3
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18


_REPORT: Final = struct.Struct("d")


@dataclass(frozen=True)
class Added:
    """Units that were made: how many a second, and the processor time of each."""

    rate: float
    milliseconds: float


class Crowd:
    """Units that wait until it ends."""

    def __init__(self, held: mmap.mmap) -> None:
        self._held = held
        self._libc = ctypes.CDLL(None)
        self._life, self._end = os.pipe()
        self._firsts: list[int] = []

    def add(self, count: int) -> Added:
        """Make so many units."""
        reports, report = os.pipe()
        started, own = time.perf_counter(), time.process_time()
        seconds, under_way = 0.0, 0
        for _ in range(count):
            if under_way == AT_ONCE:
                seconds += _next(reports)
                under_way -= 1
            pid = os.fork()
            if pid == 0:
                self._be_unit(report)
            self._firsts.append(pid)
            under_way += 1
        for _ in range(under_way):
            seconds += _next(reports)
        os.close(reports)
        os.close(report)
        whole = time.perf_counter() - started
        return Added(count / whole, (seconds + time.process_time() - own) / count * 1e3)

    def end(self) -> None:
        """End all."""
        os.close(self._end)
        for pid in self._firsts:
            os.waitpid(pid, 0)
        os.close(self._life)

    def _be_unit(self, report: int) -> None:
        try:
            os.close(self._end)
            own = time.process_time()
            if self._libc.unshare(NAMESPACES):
                os.write(report, _REPORT.pack(-1))
                return
            self._libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
            for _ in range(MOUNTS):
                self._libc.mount(b"/usr", b"/mnt", None, ctypes.c_ulong(MS_BIND), None)
            self._write(FIRST_KB)
            ready, told = os.pipe()
            for size in OTHERS_KB:
                if os.fork() == 0:
                    own = time.process_time()
                    self._write(size)
                    os.write(told, _REPORT.pack(time.process_time() - own))
                    os.read(self._life, 1)
                    return
            seconds = sum(_next(ready) for _ in OTHERS_KB)
            os.write(report, _REPORT.pack(seconds + time.process_time() - own))
            os.read(self._life, 1)
        finally:
            os._exit(0)

    def _write(self, kilobytes: int) -> None:
        for at in range(0, kilobytes << 10, mmap.PAGESIZE):
            self._held[at] = 2


def _next(reports: int) -> float:
    (seconds,) = _REPORT.unpack(os.read(reports, _REPORT.size))
    if seconds < 0:
        raise SystemExit("no namespaces can be made here")
    return float(seconds)


def added_beside(count: int, held: mmap.mmap) -> Added:
    """Make units while so many others wait."""
    crowd = Crowd(held)
    crowd.add(AT_ONCE + count)
    touch_memory(MORE * EACH_MB)
    added = crowd.add(MORE)
    crowd.end()
    return added


def crowds(count: int) -> list[Figure]:
    """Measure both in turns."""
    held = mmap.mmap(-1, HELD, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    held.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, HELD, mmap.PAGESIZE):
        held[at] = 1
    gc.freeze()
    alone: list[Added] = []
    beside: list[Added] = []
    for _ in range(ROUNDS):
        alone.append(added_beside(0, held))
        beside.append(added_beside(count, held))
    lines: list[Figure] = []
    for what, field in (("units a second", "rate"), ("processor ms of a unit", "milliseconds")):
        here = [getattr(one, field) for one in alone]
        there = [getattr(one, field) for one in beside]
        ratios = [far / near for near, far in zip(here, there, strict=True)]
        text = f"{statistics.median(here):.1f} alone, {statistics.median(there):.1f} beside {count:,}"
        lines.append(Figure(what, f"{text}: {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}"))
    return lines


def main() -> None:
    """Measure and print."""
    parser = arguments("benchmarks.crowds", __doc__)
    parser.add_argument("count", nargs="?", type=int, default=1_000, metavar="COUNT", help="how many others: 1000")
    options = parser.parse_args()
    title = machine()
    show(crowds(options.count), title, as_markdown=options.markdown)


if __name__ == "__main__":
    main()
