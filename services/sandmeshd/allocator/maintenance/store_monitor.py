"""Monitoring of the store: whether it answers, writes and is fast, whether its clock is right, and who is silent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import StoreUnavailable
from sandmeshd.allocator.records.allocator_names import FORGET_SECONDS, silent_troubles
from sandmeshd.store import Risk, Store, read_risks

log = structlog.get_logger()

PROBE_SECONDS = 1.0
SILENT_SECONDS = 2.0
"""A store that has not answered for this long is reported as unavailable."""
SLOW_SECONDS = 0.25
SKEW_SECONDS = 2.0
REMEMBERED_SECONDS = 15.0
RISKS_SECONDS = 60.0
"""How often the settings of the store's server are read."""
_SAMPLES = 5
_CONSEQUENCE = "until then nothing is created, renewed or ended, and calls to sandboxes in use go on"


@dataclass(frozen=True)
class Sample:
    """One response: the time of the store's clock, and of this process's two clocks, in seconds."""

    store: float
    wall: float
    steady: float


class StoreMonitor:
    """Probe the store periodically; its reports cost no round trip."""

    def __init__(self, store: Store, silent_seconds: float) -> None:
        """`silent_seconds` is after how long without a sweep another allocator counts as silent."""
        self._store = store
        self._probe_arguments = {"silent_us": round(silent_seconds * 1e6), "forget_us": round(FORGET_SECONDS * 1e6)}
        self._silent: Sequence[bytes] = ()
        self._error = ""
        self._fix = ""
        self._took: deque[float] = deque(maxlen=_SAMPLES)
        self._last: Sample | None = None
        self._answered = time.monotonic()
        self._probe_began: float | None = None
        """When the probe began that has not been answered yet."""
        self._jump: tuple[float, float] | None = None
        self._since: dict[str, float] = {}
        self._risks: list[Risk] = []

    async def probe(self) -> None:
        """Probe the store once."""
        began = self._probe_began = time.monotonic()
        try:
            store_us, *self._silent = await self._store.run("probe", self._probe_arguments)
        except StoreUnavailable as error:
            self._error = error.facts.get("detail", error.message)
            self._fix = error.facts.get("fix", "")
        else:
            self._record(began, int(store_us) / 1e6)
        finally:
            self._probe_began = None

    async def read_risks(self) -> None:
        """Read what the settings of its server endanger."""
        self._risks = await read_risks(self._store)

    def _record(self, began: float, store: float) -> None:
        now = time.monotonic()
        self._took.append(now - began)
        self._error, self._answered = "", now
        beat = Sample(store, time.time() - (now - began) / 2, now - (now - began) / 2)
        if self._last is not None:
            jump = (beat.store - self._last.store) - (beat.steady - self._last.steady)
            if abs(jump) > SKEW_SECONDS + (now - began):
                self._jump = (jump, now)
                log.warning("the clock of the store jumped", seconds=round(jump, 1))
        self._last = beat
        self._mark("slow", self._step() >= SLOW_SECONDS, now)
        self._mark("skewed", abs(self._skewed()) > SKEW_SECONDS, now)

    def _mark(self, trouble: str, holds: bool, now: float) -> None:
        if holds:
            self._since.setdefault(trouble, now)
        else:
            self._since.pop(trouble, None)

    def _lasted(self, trouble: str) -> str:
        return f"for {time.monotonic() - self._since[trouble]:.0f} s"

    def _step(self) -> float:
        return median(self._took) if self._took else 0.0

    def _skewed(self) -> float:
        return self._last.store - self._last.wall if self._last else 0.0

    def troubles(self) -> list[pb.Trouble]:
        """Return the present problems of the store."""
        unavailable = self._unavailable()
        others = (self._low_disk(), self._slow(), self._skew(), self._jumped())
        if unavailable is not None:
            return [unavailable]
        risks = [pb.Trouble(part="store", detail=f"it {risk.detail}", fix=risk.fix) for risk in self._risks]
        return [*(other for other in others if other), *risks, *silent_troubles(self._silent)]

    def _unavailable(self) -> pb.Trouble | None:
        now = time.monotonic()
        silence = now - self._answered
        if not self._error and (self._probe_began is None or now - self._probe_began < SILENT_SECONDS):
            return None
        if self._error and self._fix:
            detail, fix = f"it has not been able to write for {silence:.0f} s: {self._error}", self._fix
        else:
            detail = f"it has not answered for {silence:.0f} s" + (f": {self._error}" if self._error else "")
            fix = "check its server, its disk and the network to it"
        return pb.Trouble(part="store", blocks=True, detail=detail, fix=f"{fix}; {_CONSEQUENCE}")

    def _low_disk(self) -> pb.Trouble | None:
        disk = self._store.disk
        warning = disk.warning() if disk else ""
        if not disk or not warning:
            return None
        fix = f"free space on the disk of {disk.directory}: when it is full, nothing is created, renewed or ended"
        return pb.Trouble(part="store", detail=warning, fix=fix)

    def _slow(self) -> pb.Trouble | None:
        if "slow" not in self._since:
            return None
        detail = f"it is slow {self._lasted('slow')}: a command takes {self._step():.2f} s"
        fix = "check its load, its disk and the network to it; every claim, renewal and end takes that much longer"
        return pb.Trouble(part="store", detail=detail, fix=fix)

    def _skew(self) -> pb.Trouble | None:
        if "skewed" not in self._since:
            return None
        detail = f"the store's clock is {_off(self._skewed())} this allocator's, {self._lasted('skewed')}"
        fix = "synchronize both by NTP; leases and the times that are shown go only by the store's clock"
        return pb.Trouble(part="clock", detail=detail, fix=fix)

    def _jumped(self) -> pb.Trouble | None:
        if self._jump is None or time.monotonic() - self._jump[1] > REMEMBERED_SECONDS:
            return None
        size, when = self._jump
        ago = time.monotonic() - when
        detail = f"the store's clock jumped {ago:.0f} s ago: it is {_off(size)} what it was"
        ends = "that much earlier: what ended is claimed again" if size > 0 else "that much later"
        fix = f"find out why it jumped, and let NTP slew it; leases from before end {ends}"
        return pb.Trouble(part="clock", detail=detail, fix=fix)


def _off(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"
