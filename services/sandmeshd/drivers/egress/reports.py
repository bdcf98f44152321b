"""Refusals, gathered so that a program that tries without end costs neither the driver nor who watches it much."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.egress.policy import EgressRefused

log = structlog.get_logger()

GATHER_SECONDS = 1.0
_MOST = 16
_HOST_CHARACTERS = 255

Key = tuple[str, int, str]
Report = Callable[[pb.EgressRefusal], None]


class Reports:
    """One sandbox's refusals: the first immediately, what follows within a second counted together."""

    def __init__(self, sandbox_id: str, report: Report) -> None:
        self._sandbox_id = sandbox_id
        self._report = report
        self._counts: dict[Key, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, refusal: EgressRefused) -> None:
        """Take note of one."""
        key = (refusal.host[:_HOST_CHARACTERS], refusal.port, refusal.reason)
        if key not in self._counts and len(self._counts) >= _MOST:
            key = ("", 0, "and others")
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._timer is None:
            self._flush()
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._next)

    def close(self) -> None:
        """Report what has not been reported yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()

    def _next(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._next) if self._counts else None
        self._flush()

    def _flush(self) -> None:
        counts, self._counts = self._counts, {}
        for (host, port, reason), count in counts.items():
            log.debug(
                "egress was refused", sandbox_id=self._sandbox_id, host=host, port=port, reason=reason, count=count
            )
            refusal = pb.EgressRefusal(sandbox_id=self._sandbox_id, host=host, port=port, reason=reason, count=count)
            refusal.last_time.GetCurrentTime()
            self._report(refusal)
