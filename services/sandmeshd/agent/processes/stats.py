"""What the processes of the sandbox use, sampled while somebody asks."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from sandmesh._tools import Tool
from sandmesh._tools.processes import ReadStats
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Handler
from sandmeshd.agent.userland.core.process_table import others

SAMPLE_SECONDS: Final = 10.0
_KEPT: Final = 360
"""Samples: an hour of them."""
_IDLE_SECONDS: Final = 1200.0
"""How long samples are taken after somebody last asked."""
_FIRST_SECONDS: Final = 0.1
_OLDEST_SECONDS: Final = 60.0
_DISK_SECONDS: Final = 0.5
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BLOCK: Final = 512
"""The unit of `st_blocks`."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TIMES: Final = slice(11, 15)
"""A process's own time, and that of its children that have ended, in a `stat` from the state on."""


@dataclass(frozen=True)
class UsageSample:
    """What was used at a time; `cpu` is processors on average since the sample before."""

    time: float
    cpu: float
    cpu_seconds: float
    memory_bytes: int
    processes: int


class ProcessStats:
    """The samples of one sandbox, taken from the first request until some time after the last."""

    def __init__(self, workspace: str, home: str) -> None:
        self._workspace = workspace
        self._folders = {workspace, home or workspace}
        self._samples: deque[UsageSample] = deque(maxlen=_KEPT)
        self._before: tuple[float, float] | None = None
        self._last_read = 0.0
        self._sampling: asyncio.Task[None] | None = None

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of the tool."""
        return {ReadStats: self.read}

    async def read(self, request: ReadStats, call: RunningCall) -> Outcome:
        """Return what is used now, and the samples so far."""
        del request
        call.started()
        self._last_read = time.monotonic()
        if self._before is None or self._last_read - self._before[0] > _OLDEST_SECONDS:
            self._before = (time.monotonic(), _cpu_seconds())
            await asyncio.sleep(_FIRST_SECONDS)
        now = self._sample()
        disk = await asyncio.to_thread(_disk_bytes, self._folders)
        found: dict[str, Any] = {**asdict(now), "disk_bytes": disk, **_totals(self._workspace)}
        found["history"] = [asdict(sample) for sample in self._samples]
        if not self._samples:
            self._samples.append(now)
        if self._sampling is None or self._sampling.done():
            self._sampling = asyncio.create_task(self._keep_sampling())
        return Outcome(structured=json.dumps(found).encode())

    async def _keep_sampling(self) -> None:
        while time.monotonic() - self._last_read < _IDLE_SECONDS:
            await asyncio.sleep(SAMPLE_SECONDS)
            self._samples.append(self._sample())

    def _sample(self) -> UsageSample:
        now, used = time.monotonic(), _cpu_seconds()
        since, before = self._before or (now, used)
        # A process that ended unseen takes the time of its children with it.
        used = max(used, before)
        self._before = (now, used)
        cpu = (used - before) / (now - since) if now > since else 0.0
        memory, count = _memory()
        return UsageSample(
            time=time.time(), cpu=round(cpu, 4), cpu_seconds=round(used, 3), memory_bytes=memory, processes=count
        )


def _cpu_seconds() -> float:
    """Return the processor time of all processes but this one, with that of those that have ended."""
    own = os.times()
    ticks = sum(sum(map(int, fields[_TIMES])) for _, fields in others())
    return ticks / _TICKS + own.children_user + own.children_system


def _memory() -> tuple[int, int]:
    """Return the memory that is resident and not shared, in bytes, and the number of processes."""
    pages = count = 0
    for pid, _ in others():
        with suppress(OSError, ValueError), open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - often
            _, resident, shared = map(int, file.read().split()[:3])
            pages += max(0, resident - shared)
            count += 1
    return pages * _PAGE, count


def _totals(workspace: str) -> dict[str, int]:
    disk = os.statvfs(workspace)
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_total_bytes": memory,
        "disk_total_bytes": disk.f_blocks * disk.f_frsize,
    }


def _disk_bytes(folders: Iterable[str]) -> int | None:
    """Return what the files below folders take on disk; None where they are too many or too deep."""
    until, total = time.monotonic() + _DISK_SECONDS, 0
    seen: set[tuple[int, int]] = set()
    try:
        for found in chain.from_iterable(map(_files, folders)):
            inode = (found.st_dev, found.st_ino)
            total += 0 if inode in seen else found.st_blocks * _BLOCK
            seen.add(inode)
            if time.monotonic() > until:
                return None
    except RecursionError:
        return None
    return total


def _files(folder: str) -> Iterator[os.stat_result]:
    """Yield the status of everything below a folder; a link is not followed, also one that takes a folder's place."""
    with suppress(OSError):
        yield os.stat(folder)  # noqa: PTH116 - as below
    for _, folders, names, fd in os.fwalk(folder, onerror=None):
        for name in (*folders, *names):
            with suppress(OSError):
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if not stat.S_ISLNK(found.st_mode):
                    yield found
