"""What sandboxes use, and have used since somebody first asked."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Final

from sandmesh import SandboxAsync, SandboxStats
from sandmesh.errors import ProtocolMismatch, SandmeshError
from sandmesh.mesh import SandboxInfo
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.errors import ApiError

SAMPLE_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 600.0
"""How long samples are taken of a sandbox after the last request for them."""

_MOST_SAMPLES: Final = 720
_MOST_SANDBOXES: Final = 1_000
_MOST_MEASURED: Final = 8
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
        return [sample for sample in series.samples if start <= sample["timestampUnix"] <= end]

    async def measure(self, info: SandboxInfo, key: str) -> Sample:
        """Return what a sandbox uses now.

        Raises:
            ApiError: It cannot be measured.
        """
        async with (
            self._measured,
            SandboxAsync(info.sandbox_id, base_url=self._clients.address, bearer_token=key) as box,
        ):
            try:
                return _sample(info, await box.stats())
            except ProtocolMismatch as error:
                raise ApiError(503, f"the sandbox could not be measured: {error.message[:500]}") from None

    async def close(self) -> None:
        """Measure no more."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait([self._sampling])

    async def _sample(self) -> None:
        """Take samples until there was no request for a while."""
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
            # It has ended or is paused, or its key was revoked: the next request reports it.
            series.last_use = 0.0
            if self._series.get(name) is series and not series.samples:
                del self._series[name]


def _sample(info: SandboxInfo, found: SandboxStats) -> Sample:
    cores = info.limits.cpus or found.cores
    return {
        "timestamp": found.time.isoformat().replace("+00:00", "Z"),
        "timestampUnix": int(found.time.timestamp()),
        "cpuCount": max(1, round(cores)),
        "cpuUsedPct": round(100 * found.cpu / cores, 2) if cores else 0.0,
        "memUsed": found.memory_bytes,
        "memTotal": int(info.limits.memory or found.memory_total_bytes),
        "memCache": 0,
        "diskUsed": found.disk_bytes or 0,
        "diskTotal": int(info.limits.disk or found.disk_total_bytes),
    }
