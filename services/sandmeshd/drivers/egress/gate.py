"""The egress of a driver: one proxy for all its sandboxes, each with a policy of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandmeshError
from sandmeshd.drivers.egress.carrier import Carrier
from sandmeshd.drivers.egress.dialer import Clearing, Ways
from sandmeshd.drivers.egress.exchange import Exchange
from sandmeshd.drivers.egress.grants import is_open, policy_of
from sandmeshd.drivers.egress.outlets import Outlet, outlet_of
from sandmeshd.drivers.egress.packages import warn_of_directories
from sandmeshd.drivers.egress.reports import Reports, Told
from sandmeshd.drivers.egress.resolver import Resolver, SystemResolver
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import Stream

log = structlog.get_logger()

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0

Alive = Callable[[], Awaitable[bool]]


class Gate:
    """Carries what sandboxes may send; opened by `open_gate`."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._connections = 0

    def admit(self, sandbox: pb.RuntimeSandbox, grant: sandbox_pb2.NetworkGrant, alive: Alive, tell: Told) -> None:
        """Carry a sandbox's egress until it is dismissed or no longer alive; refusals are told to `tell`.

        Raises:
            InvalidArgument: A host of the grant is none.
        """
        if is_open(grant) and sandbox.sandbox_id not in self._tasks:
            way = _Way(self, self._ways, Clearing(policy_of(grant, self._ways.settings), self._ways))
            task = asyncio.create_task(way.keep(sandbox, alive, tell))
            self._tasks[sandbox.sandbox_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(sandbox.sandbox_id, None))

    async def dismiss(self, sandbox_id: str) -> None:
        """Carry nothing of a sandbox any more."""
        task = self._tasks.get(sandbox_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Carry nothing any more."""
        await asyncio.gather(*(self.dismiss(name) for name in list(self._tasks)))

    def take_one(self) -> bool:
        """Count a connection in, unless there are too many already."""
        if self._connections >= self._ways.settings.total_connections:
            return False
        self._connections += 1
        return True

    def give_back(self) -> None:
        """Count a connection out."""
        self._connections -= 1


class _Delays:
    """How long to wait before the next try: longer each time, until one works."""

    def __init__(self) -> None:
        self._delay = _FIRST_DELAY

    def reset(self) -> None:
        self._delay = _FIRST_DELAY

    def next(self) -> float:
        delay, self._delay = self._delay, min(self._delay * 2, _LONGEST_DELAY)
        return delay


class _Way:
    """One sandbox's way out."""

    def __init__(self, gate: Gate, ways: Ways, clearing: Clearing) -> None:
        self._gate = gate
        self._settings = ways.settings
        self._clearing = clearing
        self._open = 0

    async def keep(self, sandbox: pb.RuntimeSandbox, alive: Alive, tell: Told) -> None:
        """Hold the link to the agent, again where it breaks, while the sandbox lives."""
        reports = Reports(sandbox.sandbox_id, tell)
        delays = _Delays()
        try:
            while await alive():
                await self._hold(Carrier(sandbox, lambda stream: self._serve(stream, reports)), delays, alive)
                await asyncio.sleep(delays.next())
        finally:
            reports.close()

    async def _hold(self, carrier: Carrier, delays: _Delays, alive: Alive) -> None:
        try:
            await carrier.run(delays.reset)
        except SandmeshError as error:
            if await alive():
                log.info("a sandbox's egress is not carried", error=error.message)
        except Exception:
            log.exception("a sandbox's egress failed unexpectedly")

    async def _serve(self, stream: Stream, reports: Reports) -> None:
        exchange = Exchange(stream, self._clearing, self._settings, reports.add)
        if self._open >= self._settings.connections or not self._gate.take_one():
            await exchange.refuse(f"too many connections at once: a sandbox may have {self._settings.connections}")
            return
        self._open += 1
        try:
            await exchange.serve()
        except Exception:
            log.exception("a connection out of a sandbox failed unexpectedly")
            await stream.reset()
        finally:
            self._open -= 1
            self._gate.give_back()


@asynccontextmanager
async def open_gate(
    settings: EgressSettings, resolver: Resolver | None = None, outlet: Outlet | None = None
) -> AsyncGenerator[Gate]:
    """Open the egress of a driver; who finds addresses and who connects can be another than the system.

    Raises:
        InvalidArgument: The node's own proxy is no http:// URL.
    """
    warn_of_directories(settings.indexes)
    gate = Gate(Ways(settings, resolver or SystemResolver(), outlet or outlet_of(settings)))
    try:
        yield gate
    finally:
        await gate.close()
