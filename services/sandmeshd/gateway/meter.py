"""Counts calls as they pass the gateway, by a few increments each."""

from __future__ import annotations

import time

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.runtime.metrics import GatewayMetrics, ToolMetrics

_REASONS: dict[int, str] = {number: name.removeprefix("END_REASON_") for name, number in pb.EndReason.items()}


class CallMeter:
    """Counts one call that a caller follows; one that was attached to has no start here, and no latency."""

    __slots__ = ("_began", "_metrics", "_open", "_tool")

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._tool: ToolMetrics | None = None
        self._began = 0.0
        self._open = False

    def follow(self, start: pb.CallStart | None) -> None:
        """Begin, with the start of a call or with an attachment to one."""
        self._open = True
        self._metrics.followed += 1
        if start is not None:
            self._began = time.monotonic()
            self._tool = self._metrics.tool(start.tool)
            self._tool.started.inc()
            self._metrics.received.inc(len(start.arguments))

    def took(self, size: int) -> None:
        """Count events from the agent."""
        self._metrics.sent.inc(size)

    def gave(self, size: int) -> None:
        """Count input for the agent."""
        self._metrics.received.inc(size)

    def ended(self, reason: int) -> str:
        """Count the result, and give its reason's name."""
        name = _REASONS.get(reason, "UNKNOWN")
        if self._tool is not None:
            self._tool.seconds.observe(time.monotonic() - self._began)
            self._tool.ended(name).inc()
        return name

    def refused(self, reason: str) -> None:
        """Count a refusal."""
        if self._tool is not None:
            self._tool.ended(reason).inc()

    def left(self) -> None:
        """The caller follows it no more."""
        if self._open:
            self._open = False
            self._metrics.followed -= 1
