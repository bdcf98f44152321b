"""Which traces are recorded: as OpenTelemetry's sampler says, and of those that callers ask for so many a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import get_current_span

if TYPE_CHECKING:
    from opentelemetry.context import Context


class BoundedSampler(Sampler):
    """The sampler that OTEL_TRACES_SAMPLER names, but for callers who would have too much recorded.

    A caller decides by the flag of its `traceparent`; beyond `most_per_second` it is ignored.
    """

    def __init__(self, most_per_second: float) -> None:
        self._named = TracerProvider(shutdown_on_exit=False).sampler
        self._most = most_per_second
        self._left = most_per_second
        self._filled = time.monotonic()

    def should_sample(
        self, parent_context: Context | None, trace_id: int, name: str, *args: Any, **options: Any
    ) -> SamplingResult:
        """Decide about a span."""
        above = get_current_span(parent_context).get_span_context()
        if above.is_remote and above.trace_flags.sampled and not self._take():
            return SamplingResult(Decision.DROP)
        return self._named.should_sample(parent_context, trace_id, name, *args, **options)

    def get_description(self) -> str:
        """Describe it."""
        return f"BoundedSampler({self._named.get_description()})"

    def _take(self) -> bool:
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._filled) * self._most)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
