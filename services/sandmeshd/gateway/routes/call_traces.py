"""The spans of a call: the gateway's own, and that of the agent's work, whose place in the trace the agent is told."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.shared.traces.context import (
    MOST_NAME,
    RemoteTrace,
    context_within,
    current_trace,
    end_span,
    read_trace,
    sent_by,
    start_span,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class CallTrace:
    """A call that is recorded, from its start at the gateway to its result."""

    __slots__ = ("_agent", "_span")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._agent: Span | None = None

    def task_context(self) -> Context | None:
        """Return the context variables of a task that works for the call."""
        return context_within(self._span)

    def forwarded(self, start: call_pb2.CallStart) -> None:
        """Begin the span of the agent's work, and write its place into the start."""
        self._agent = start_span(f"agent {start.tool[:MOST_NAME]}", "CLIENT", parent=self._span)
        sent = None if self._agent is None else sent_by(self._agent)
        if sent is not None:
            start.trace.traceparent, start.trace.tracestate = sent

    def answered(self, frame: agent_pb2.FromAgent, reason: str) -> None:
        """End the spans with the frame that has the call's result."""
        if self._agent is not None and frame.HasField("run_time"):
            self._agent.set_attribute("sandmesh.agent.run_seconds", frame.run_time.ToNanoseconds() / 1e9)
        self.end(reason)

    def end(self, reason: str) -> None:
        """End the spans; ending them again changes nothing."""
        for span in (self._agent, self._span):
            if span is not None and span.is_recording():
                end_span(span, reason)


def begin_trace(start: call_pb2.CallStart) -> CallTrace | None:
    """Return what records a call, None where it is not recorded: what its caller sent then goes on to the agent."""
    remote = _read(start)
    tool = start.tool[:MOST_NAME]
    # Nobody records a call whose caller does not: most calls are such, where few are sampled.
    span = start_span(f"call {tool}", "SERVER", parent=remote) if remote is None or remote.sampled else None
    if span is None or not span.is_recording():
        if remote is not None:
            start.trace.traceparent, start.trace.tracestate = remote
        return None
    span.set_attributes(
        {
            "gen_ai.tool.name": tool,
            "sandmesh.sandbox_id": start.sandbox_id[:MOST_NAME],
            "sandmesh.call_id": start.call_id[: 2 * MOST_NAME],
        }
    )
    return CallTrace(span)


def _read(start: call_pb2.CallStart) -> RemoteTrace | None:
    """Return the trace that a start names, else the one of its RPC; what is not well formed is removed."""
    if not start.HasField("trace"):
        return current_trace()
    remote = read_trace(start.trace.traceparent, start.trace.tracestate)
    if remote is None:
        start.ClearField("trace")
    return remote
