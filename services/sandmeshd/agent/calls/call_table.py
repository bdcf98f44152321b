"""The calls of a sandbox: each id runs once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from sandmesh.errors import CallExpired, CallNotFound
from sandmeshd.agent.calls.call import Call


@dataclass(frozen=True)
class Keeping:
    """How much of finished calls is kept."""

    seconds: float = 600.0
    calls: int = 1000
    bytes: int = 64 << 20
    expired_ids: int = 16_384


class Calls:
    """Running calls, finished ones while their logs are kept, and the ids of those before."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._loop = asyncio.get_running_loop()
        self._calls: dict[str, Call] = {}
        self._finished: OrderedDict[str, float] = OrderedDict()
        self._bytes = 0
        self._expired: OrderedDict[str, None] = OrderedDict()

    def find(self, call_id: str) -> Call | None:
        """Give a call that runs or whose log is kept, None for an id that was never used.

        Raises:
            CallExpired: It finished and its log is no longer kept.
        """
        self._expire()
        call = self._calls.get(call_id)
        if call is None and call_id in self._expired:
            raise CallExpired(
                f"call {call_id} finished and its events are no longer kept; it does not run again. Use a new call_id",
                {"call_id": call_id},
            )
        return call

    def get(self, call_id: str) -> Call:
        """Give a call that there is.

        Raises:
            CallExpired: It finished and its log is no longer kept.
            CallNotFound: The id was never used here.
        """
        call = self.find(call_id)
        if call is None:
            raise CallNotFound(f"no call {call_id} was started in this sandbox", {"call_id": call_id})
        return call

    @property
    def untouched(self) -> bool:
        """Whether none was ever started."""
        return not (self._calls or self._expired)

    def add(self, call: Call) -> None:
        """Keep a call that starts now."""
        self._calls[call.id] = call

    def finish(self, call: Call) -> None:
        """Note that a call has finished: from now its log may be forgotten."""
        self._finished[call.id] = self._loop.time() + self._keeping.seconds
        self._bytes += call.log.used
        self._expire()

    def running(self) -> list[Call]:
        """Give the calls that have not finished."""
        return [call for call in self._calls.values() if not call.finished]

    def _expire(self) -> None:
        now = self._loop.time()
        while self._finished:
            call_id = next(iter(self._finished))
            many = len(self._finished) > self._keeping.calls or self._bytes > self._keeping.bytes
            if not many and self._finished[call_id] > now:
                return
            del self._finished[call_id]
            forgotten = self._calls.pop(call_id)
            self._bytes -= forgotten.log.used
            forgotten.log.close()
            self._expired[call_id] = None
            if len(self._expired) > self._keeping.expired_ids:
                self._expired.popitem(last=False)
