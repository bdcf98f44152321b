"""The span of each call, from its start to its result, in programs that record traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandmesh._calls.call import Call, DroppedEvents, Order, Receiver
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmesh.shared.traces.context import MOST_NAME, current_trace, end_span, sent_by, start_span

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_REASON = "END_REASON_"


class TracedReceiver:
    """Passes a call's events on, and ends its span with its result."""

    def __init__(self, receiver: Receiver, span: Span) -> None:
        self._receiver = receiver
        self._span = span

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Pass events on."""
        if events[-1].HasField("result"):
            result = events[-1].result
            self._span.set_attribute("sandmesh.is_error", result.is_error)
            self.end(pb.EndReason.Name(result.reason).removeprefix(_REASON))
        self._receiver.on_events(call, events, size)

    def on_input_taken(self, call: Call) -> None:
        """Pass it on."""
        self._receiver.on_input_taken(call)

    def on_error(self, error: SandmeshError) -> None:
        """End the span, and pass the error on."""
        self.end(error.reason)
        self._receiver.on_error(error)

    def end(self, reason: str) -> None:
        """End the span; ending it again changes nothing."""
        if self._span.is_recording():
            end_span(self._span, reason)


def traced(call_id: str, order: Order, receiver: Receiver) -> Receiver:
    """Begin a call's span, of which the order then carries the place; return what receives its events.

    Names follow https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/#execute-tool-span.
    """
    if order.attach_to:
        return receiver
    tool = order.tool[:MOST_NAME]
    span = start_span(f"execute_tool {tool}", "CLIENT")
    if span is None:
        order.trace = current_trace()
        return receiver
    order.trace = sent_by(span)
    if not span.is_recording():
        return receiver
    span.set_attributes(
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": call_id,
            "sandmesh.sandbox_id": order.sandbox_id,
        }
    )
    return TracedReceiver(receiver, span)


def let_go(call: Call, reason: str) -> None:
    """Drop a call's further events; its span, where it has one, ends for a reason."""
    if isinstance(call.receiver, TracedReceiver):
        call.receiver.end(reason)
    call.receiver = DroppedEvents()
