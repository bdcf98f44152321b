"""What sandboxes use, and have used since somebody first asked."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sandmesh import SandboxAsync
from sandmesh.errors import SandmeshError
from sandmesh.mesh import SandboxInfo
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.errors import ApiError

SAMPLE_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 600.0
"""How long samples are taken of a sandbox that nobody asks about any more."""

_MOST_SAMPLES: Final = 720
_MOST_SANDBOXES: Final = 1_000
_MOST_MEASURED: Final = 8
_SECONDS: Final = 30.0
_PROGRAM: Final = """
import glob, json, os, time

def ticks():
    total = 0
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = open(path).read().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total

def memory():
    pages = 0
    for path in glob.glob("/proc/[0-9]*/statm"):
        try:
            size, resident, shared = open(path).read().split()[:3]
        except OSError:
            continue
        pages += int(resident) - int(shared)
    return pages * os.sysconf("SC_PAGE_SIZE")

began, before = time.monotonic(), ticks()
time.sleep(0.1)
used = (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
lines = dict(line.split(":", 1) for line in open("/proc/meminfo") if ":" in line)
disk = os.statvfs(".")
print(json.dumps({
    "cpu": used, "cores": len(os.sched_getaffinity(0)), "memory": memory(),
    "total": int(lines["MemTotal"].split()[0]) * 1024,
    "disk": (disk.f_blocks - disk.f_bfree) * disk.f_frsize, "size": disk.f_blocks * disk.f_frsize,
}))
"""
"""Of user code's processes; memory that they share, as a Python's, is not counted."""

Sample = dict[str, Any]


@dataclass
class _Series:
    info: SandboxInfo
    key: str
    last_use: float = 0.0
    samples: deque[Sample] = field(default_factory=lambda: deque[Sample](maxlen=_MOST_SAMPLES))


class SandboxMeter:
    """Measures sandboxes, each in the name of a key, and keeps the samples of those that are asked about."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients
        self._measured = asyncio.Semaphore(_MOST_MEASURED)
        self._series: OrderedDict[str, _Series] = OrderedDict()
        self._sampling: asyncio.Task[None] | None = None

    async def history(self, info: SandboxInfo, key: str, start: float, end: float) -> list[Sample]:
        """Return the samples of a time; with now, if the sandbox runs."""
        series = self._series.setdefault(info.sandbox_id, _Series(info, key))
        self._series.move_to_end(info.sandbox_id)
        series.last_use, series.key = time.monotonic(), key
        while len(self._series) > _MOST_SANDBOXES:
            self._series.popitem(last=False)
        if info.state == "READY":
            series.samples.append(await self.measure(info, key))
            if self._sampling is None or self._sampling.done():
                self._sampling = asyncio.create_task(self._sample())
        return [one for one in series.samples if start <= one["timestampUnix"] <= end]

    async def measure(self, info: SandboxInfo, key: str) -> Sample:
        """Return what a sandbox uses now.

        Raises:
            ApiError: It cannot be measured.
        """
        async with (
            self._measured,
            SandboxAsync(info.sandbox_id, base_url=self._clients.address, bearer_token=key) as box,
        ):
            command = f"exec python -I -c {shlex.quote(_PROGRAM)}"
            measured = await box.call_tool("run_shell_command", {"command": command, "timeout": _SECONDS})
        try:
            return _sample(info, json.loads(measured.stdout))
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError, ZeroDivisionError):
            raise ApiError(503, f"the sandbox could not be measured: {measured.text[:500]}") from None

    async def close(self) -> None:
        """Measure no more."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait([self._sampling])

    async def _sample(self) -> None:
        """Take samples until nobody has asked for a while."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            since = time.monotonic() - _IDLE_SECONDS
            wanted = [(name, one) for name, one in self._series.items() if one.last_use > since]
            if not wanted:
                return
            await asyncio.gather(*(self._add(name, one) for name, one in wanted))

    async def _add(self, name: str, series: _Series) -> None:
        try:
            series.samples.append(await self.measure(series.info, series.key))
        except (SandmeshError, ApiError):
            # It has ended or is paused, or its key was revoked: whoever asks again is told.
            series.last_use = 0.0
            if self._series.get(name) is series and not series.samples:
                del self._series[name]


def _sample(info: SandboxInfo, found: dict[str, Any]) -> dict[str, Any]:
    cores = info.limits.cpus or int(found["cores"])
    now = datetime.now(UTC)
    return {
        "timestamp": now.isoformat().replace("+00:00", "Z"),
        "timestampUnix": int(now.timestamp()),
        "cpuCount": max(1, round(cores)),
        "cpuUsedPct": round(100 * float(found["cpu"]) / cores, 2),
        "memUsed": int(found["memory"]),
        "memTotal": int(info.limits.memory or found["total"]),
        "memCache": 0,
        "diskUsed": int(found["disk"]),
        "diskTotal": int(info.limits.disk or found["size"]),
    }
