"""How the store is: whether it answers, how fast, whether it can write, and what time it thinks it is."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from statistics import median

import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import StoreUnavailable
from sandmeshd.store import Store

log = structlog.get_logger()

LOOK_SECONDS = 1.0
SILENT_SECONDS = 2.0
"""A store that has not answered for so long is said to be away."""
SLOW_SECONDS = 0.25
SKEW_SECONDS = 2.0
REMEMBERED_SECONDS = 15.0
_LOOKS = 5


@dataclass(frozen=True)
class Beat:
    """One answer: what the store's clock said, in seconds, and when it was on this process's two clocks."""

    store: float
    wall: float
    steady: float


class Pulse:
    """Looks at the store again and again; what it says costs no round trip."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked = 0.0
        self._error = ""
        self._took: deque[float] = deque(maxlen=_LOOKS)
        self._last: Beat | None = None
        self._answered = time.monotonic()
        self._jump: tuple[float, float] | None = None

    async def look(self) -> None:
        """Ask the store once, and pause."""
        began = time.monotonic()
        try:
            [said] = await self._store.run("pulse", {})
        except StoreUnavailable as error:
            self._error = error.facts.get("detail", error.message)
        else:
            self._heard(began, int(said) / 1e6)
        await asyncio.sleep(LOOK_SECONDS)

    def _heard(self, began: float, store: float) -> None:
        now = time.monotonic()
        self._took.append(now - began)
        self._error, self._answered = "", now
        beat = Beat(store, time.time() - (now - began) / 2, now - (now - began) / 2)
        if self._last is not None:
            jump = (beat.store - self._last.store) - (beat.steady - self._last.steady)
            if abs(jump) > SKEW_SECONDS + (now - began):
                self._jump = (jump, now)
                log.warning("the clock of the store jumped", seconds=round(jump, 1))
        self._last = beat

    def troubles(self) -> list[pb.Trouble]:
        """Say what is wrong with the store now."""
        away = self._away()
        return [away] if away is not None else [one for one in (self._slow(), self._skew(), self._jumped()) if one]

    def _away(self) -> pb.Trouble | None:
        silence = time.monotonic() - self._answered
        if not self._error and silence < LOOK_SECONDS + SILENT_SECONDS:
            return None
        detail = f"it has not answered for {silence:.0f} s" + (f": {self._error}" if self._error else "")
        fix = "requests wait for it: look at its server, its disk and the way to it"
        return pb.Trouble(part="store", blocks=True, detail=detail, fix=fix)

    def _slow(self) -> pb.Trouble | None:
        took = median(self._took) if self._took else 0.0
        if took < SLOW_SECONDS:
            return None
        fix = "look at its load, its disk and the way to it: every claim takes as long"
        return pb.Trouble(part="store", detail=f"it is slow: a step takes {took:.2f} s", fix=fix)

    def _skew(self) -> pb.Trouble | None:
        skew = self._last.store - self._last.wall if self._last else 0.0
        if abs(skew) <= SKEW_SECONDS:
            return None
        detail = f"the store's clock is {_off(skew)} this allocator's"
        return pb.Trouble(part="clock", detail=detail, fix="let NTP set both; deadlines go by the store's")

    def _jumped(self) -> pb.Trouble | None:
        if self._jump is None or time.monotonic() - self._jump[1] > REMEMBERED_SECONDS:
            return None
        size, when = self._jump
        ago = time.monotonic() - when
        detail = f"the store's clock jumped {ago:.0f} s ago: it is {_off(size)} what it was"
        return pb.Trouble(
            part="clock", detail=detail, fix="leases that ended early are claimed anew; see why it jumped"
        )


def _off(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"
