"""What a gateway counts of each call: for metrics, and against the quotas of its owners.

Against quotas a call costs two increments. Only one whose gateway's share is used up waits for the store, which divides
a quota among gateways so that all together never carry more. Shares are renewed every second while calls come.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import structlog

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.quota.v1 import quota_pb2 as pb
from sandmesh.api.quota.v1 import quota_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import Fault, SandmeshError
from sandmesh.shared.traces.context import tracer
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.principal import SERVICE, acting_for, counted_user
from sandmeshd.gateway.metrics import GatewayMetrics, ToolMetrics
from sandmeshd.gateway.routes.call_traces import CallTrace, begin_trace
from sandmeshd.runtime.beat import beat
from sandmeshd.runtime.retry import CALL_SECONDS, retry_until_available
from sandmeshd.tenants.quotas import Kind, ReachedQuota

log = structlog.get_logger()

REPORT_SECONDS: Final = 1.0
QUIET_REPORTS: Final = 5
"""After so many reports without a call, shares go back, and nothing is reported until the next one."""
WAIT_SECONDS: Final = 1.5
"""How long a call waits for what other gateways hold and do not use: longer than until their next reports."""
_AGAIN_SECONDS: Final = 0.1

_Owner = tuple[Kind, str]

# A call that EXITED or was KILLED may have failed, but then by its own code, which its result says.
_FAULTS: dict[str, Fault] = {"TIMED_OUT": "limit", "OUT_OF_MEMORY": "limit", "SANDBOX_LOST": "infra"}

_REASONS: dict[int, str] = {number: name.removeprefix("END_REASON_") for name, number in call_pb2.EndReason.items()}


class Meter:
    """The calls of one owner that the gateway carries, and how many it may."""

    __slots__ = ("__weakref__", "calls", "full_until", "granted", "owner", "wanted")

    def __init__(self, owner: _Owner, granted: float) -> None:
        self.owner = owner
        self.calls = 0
        self.wanted = 0
        self.granted = granted
        self.full_until = 0.0
        """Until when it is known that no gateway may carry more."""

    @property
    def full(self) -> bool:
        """Whether the share is used up."""
        return self.calls >= self.granted


Meters = tuple[Meter, ...]


@dataclass(slots=True)
class CallMeter:
    """Counts one call that a caller follows; one that was attached to has no start here, and no latency."""

    metrics: GatewayMetrics
    slots: Meters | None
    """Where it counts against quotas; None: nowhere yet."""
    _tool: ToolMetrics | None = None
    _began: float = 0.0
    trace: CallTrace | None = None
    """What records it as a part of a trace."""

    def started(self, start: call_pb2.CallStart) -> None:
        """Count the start."""
        if start.HasField("trace") or tracer() is not None:
            self.trace = begin_trace(start)
        self._began = time.monotonic()
        self._tool = self.metrics.tools.get(start.tool) or self.metrics.add_tool(start.tool)
        self._tool.started.inc()
        self.metrics.received.inc(len(start.arguments))

    def ended(self, frame: agent_pb2.FromAgent) -> str:
        """Count the result, which the last frame has; return its reason's name."""
        name = _REASONS.get(frame.end_reason, "UNKNOWN")
        if self.trace is not None:
            self.trace.answered(frame, name)
        if name in _FAULTS:
            self.metrics.faults.labels(_FAULTS[name]).inc()
        tool = self._tool
        if tool is not None:
            tool.seconds.observe(time.monotonic() - self._began)
            (tool.ended.get(name) or tool.add_reason(name)).inc()
        return name

    def refused(self, error: SandmeshError) -> None:
        """Count a refusal."""
        self.metrics.faults.labels(error.fault).inc()
        if self.trace is not None:
            self.trace.end(error.reason)
        tool, reason = self._tool, error.reason
        if tool is not None:
            (tool.ended.get(reason) or tool.add_reason(reason)).inc()


class CallQuotas:
    """The calls that a gateway carries, by their sandboxes' owners; without a stub, nothing is limited."""

    def __init__(self, stub: quota_pb2_grpc.QuotaServiceAsyncStub | None = None, timeout: float = 5.0) -> None:
        self._stub = stub
        self._timeout = timeout
        self._gateway_id = secrets.token_hex(8)
        self._meters: WeakValueDictionary[_Owner, Meter] = WeakValueDictionary()
        self._of_sandboxes: dict[str, Meters] = {}
        self._shares: Mapping[_Owner, pb.CallShare] = {}
        self._awake = asyncio.Event()
        self._awake.set()
        self._entered = False
        self._reporting = asyncio.Lock()
        self._reported = -math.inf

    def assign(self, sandbox: sandbox_pb2.Sandbox) -> None:
        """Learn whose calls a sandbox's are."""
        if sandbox.session_key:
            owners: Sequence[_Owner] = (("project", sandbox.project), ("caller", counted_user(sandbox.user_id)))
            self._of_sandboxes[sandbox.sandbox_id] = tuple(self._meter(owner) for owner in owners if owner[1])

    def forget(self, sandbox_id: str) -> None:
        """Forget a sandbox; its calls count until they end."""
        self._of_sandboxes.pop(sandbox_id, None)

    def enter(self, sandbox_id: str, *, running: bool = False) -> Meters | None:
        """Count a call, and return where; None where a share is used up, unless it is running already.

        The end of the call is counted out of each.
        """
        meters = self._of_sandboxes.get(sandbox_id, ())
        self._entered = True
        self._awake.set()
        if not running:
            for meter in meters:
                if meter.calls >= meter.granted:
                    return None
        for meter in meters:
            meter.calls += 1
        return meters

    async def admit(self, sandbox_id: str, *, running: bool = False) -> Meters:
        """Count a call as soon as the shares allow it.

        Raises:
            QuotaExceeded: As many calls of an owner are in flight as may be.
            SandmeshError: The share is used up, and the store does not answer for another.
        """
        late = time.monotonic() + WAIT_SECONDS
        while (meters := self.enter(sandbox_id, running=running)) is None:
            full = next(meter for meter in self._of_sandboxes[sandbox_id] if meter.full)
            await retry_until_available(partial(self._ask, full), CALL_SECONDS)
            share = self._shares.get(full.owner)
            if not full.full or share is None:
                continue
            if full.calls + share.elsewhere >= share.limit:
                full.full_until = time.monotonic() + _AGAIN_SECONDS
            elif time.monotonic() < late:
                # Another gateway holds what it does not use, until its next report.
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            kind, name = full.owner
            raise ReachedQuota(kind, name, "calls_in_flight", full.calls + share.elsewhere, share.limit).error(1)
        return meters

    async def report_forever(self) -> None:
        """Report and renew the shares until cancelled."""
        quiet = 0
        while True:
            await self._awake.wait()
            quiet = 0 if self._entered or any(meter.calls for meter in self._meters.values()) else quiet + 1
            self._entered = False
            if quiet >= QUIET_REPORTS:
                self._awake.clear()
            try:
                await self.report()
            except SandmeshError as error:
                log.info("the shares of calls in flight could not be renewed", error=error.message)
            await beat(REPORT_SECONDS)

    async def report(self) -> None:
        """Report the calls and renew the shares.

        Raises:
            SandmeshError: The store does not answer.
        """
        async with self._reporting:
            await self._report()

    def _meter(self, owner: _Owner) -> Meter:
        meter = self._meters.get(owner)
        if meter is None:
            meter = self._meters[owner] = Meter(owner, self._granted(owner))
        return meter

    def _granted(self, owner: _Owner) -> float:
        share = self._shares.get(owner)
        return math.inf if share is None else share.granted

    async def _ask(self, full: Meter) -> None:
        """Ask for more than the share; many that wait ask once."""
        came = time.monotonic()
        if came < full.full_until:
            return
        full.wanted += 1
        try:
            async with self._reporting:
                if full.full and self._reported <= came:
                    await self._report()
        finally:
            full.wanted -= 1

    async def _report(self) -> None:
        if self._stub is None:
            return
        self._reported = time.monotonic()
        counts = [_count(meter) for meter in self._meters.values() if meter.owner in self._shares]
        request = pb.ShareCallsRequest(
            gateway_id=self._gateway_id, counts=[count for count in counts if count.calls or count.wanted]
        )
        request.leaving = not self._awake.is_set()
        with acting_for(SERVICE), translated():
            response = await self._stub.ShareCalls(request, timeout=self._timeout)
        self._shares = {_owner(share): share for share in response.shares}
        for meter in self._meters.values():
            meter.granted = self._granted(meter.owner)


def _owner(share: pb.CallShare) -> _Owner:
    return ("project", share.project) if share.project else ("caller", share.user_id)


def _count(meter: Meter) -> pb.CallCount:
    kind, name = meter.owner
    count = pb.CallCount(calls=meter.calls, wanted=meter.wanted)
    setattr(count, "project" if kind == "project" else "user_id", name)
    return count
