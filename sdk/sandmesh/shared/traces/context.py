"""Traces by OpenTelemetry's API, in programs that use it: one that has not imported it has no trace to continue.

What a peer sends as its place in a trace is read here, as https://www.w3.org/TR/trace-context/ specifies it. Baggage is
neither read nor sent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sandmesh.shared.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

Attributes = Mapping[str, "str | int | float | bool"]

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MOST_STATE: Final = 512
"""The most characters of a tracestate, of which the specification demands so many; a longer one is dropped."""
MOST_NAME: Final = 64
"""The most characters of what a caller names, such as a tool, in the name or an attribute of a span."""

_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[\x20-\x7e]*")


class RemoteTrace(NamedTuple):
    """A place in a trace, as it is sent."""

    traceparent: str
    tracestate: str = ""

    @property
    def sampled(self) -> bool:
        """Whether its caller records the trace."""
        return bool(int(self.traceparent[-2:], 16) & 1)


_received: ContextVar[RemoteTrace | None] = ContextVar("received", default=None)
"""What the present request came with, in a program that records no spans and passes it on."""
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def read_trace(traceparent: object, tracestate: object = "") -> RemoteTrace | None:
    """Return what a peer sent, None where it is not well formed; a tracestate that is not is left out."""
    if not isinstance(traceparent, str) or len(traceparent) != 55 or not _PARENT.fullmatch(traceparent):
        return None
    usable = isinstance(tracestate, str) and len(tracestate) <= MOST_STATE and _STATE.fullmatch(tracestate)
    return RemoteTrace(traceparent, str(tracestate) if usable else "")


def may_trace() -> bool:
    """Return whether there is a trace to begin or to pass on, which is all that a call pays where there is none."""
    return tracer() is not None or _received.get() is not None


def tracer() -> Tracer | None:
    """Return what starts spans, None where this program records none."""
    api: Any = sys.modules.get("opentelemetry.trace")
    find = getattr(api, "get_tracer_provider", None)  # another thread may be importing it just now
    if find is None or _quiet.get():
        return None
    provider = find()
    return None if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider) else _tracer_of(provider)


@lru_cache(maxsize=2)
def _tracer_of(provider: Any) -> Tracer:
    made: Tracer = provider.get_tracer("sandmesh", __version__)
    return made


def current_trace() -> RemoteTrace | None:
    """Return what is to be sent along with a request."""
    if tracer() is not None:
        sent = sent_by(_api().get_current_span())
        if sent is not None:
            return sent
    return None if _quiet.get() else _received.get()


def metadata_of(trace: RemoteTrace | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata, or the headers, that say of which trace a request is a part."""
    if trace is None:
        return ()
    return tuple((key, value) for key, value in zip((TRACEPARENT, TRACESTATE), trace, strict=True) if value)


def sent_by(span: Span) -> RemoteTrace | None:
    """Return what is to be sent with a request that a span is about; None where the span belongs to no trace."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    state = context.trace_state.to_header() if context.trace_state else ""
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return RemoteTrace(parent, state if len(state) <= MOST_STATE else "")


def start_span(
    name: str, kind: str = "INTERNAL", attributes: Attributes | None = None, parent: RemoteTrace | Span | None = None
) -> Span | None:
    """Start a span, by default below the current one; None where this program records none. `end_span` ends it."""
    found = tracer()
    if found is None:
        return None
    api = _api()
    above = _remote_span(parent) if isinstance(parent, RemoteTrace) else parent
    context = None if above is None else api.set_span_in_context(above)
    return found.start_span(name, context=context, kind=api.SpanKind[kind], attributes=dict(attributes or {}))


def end_span(span: Span | None, reason: str = "OK") -> None:
    """End a span with the reason that its work ended for; OK and EXITED are no errors."""
    if span is None:
        return
    if reason not in ("OK", "EXITED"):
        span.set_attribute("error.type", reason)
        span.set_status(_api().StatusCode.ERROR, reason)
    span.end()


@contextmanager
def span_of(
    name: str, kind: str = "INTERNAL", attributes: Attributes | None = None, *, remote: RemoteTrace | None = None
) -> Generator[Span | None]:
    """Make a block's work a span, below that of a peer where `remote` is one; yields None where none is recorded.

    An exception that has a `reason`, as those of sandmesh.errors, ends the span with it.
    """
    span = start_span(name, kind, attributes, remote)
    if span is None:
        token = _received.set(remote or _received.get())
        try:
            yield None
        finally:
            _received.reset(token)
        return
    with _api().use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        reason = "OK"
        try:
            yield span
        except BaseException as error:
            reason = getattr(error, "reason", "") or ("INTERNAL" if isinstance(error, Exception) else "CANCELLED")
            raise
        finally:
            end_span(span, reason)


@contextmanager
def passing_on(remote: RemoteTrace | None) -> Generator[None]:
    """Send what a peer sent along with the requests of a block that has no span, as a stream of calls has none."""
    token = _received.set(remote)
    try:
        yield
    finally:
        _received.reset(token)


def step_of(name: str, attributes: Attributes | None = None, kind: str = "INTERNAL") -> AbstractContextManager[object]:
    """Make a block a span where its work is a part of a trace; work on a program's own account begins none."""
    return span_of(name, kind, attributes) if is_traced() else nullcontext()


def is_traced() -> bool:
    """Return whether the present work is a part of a trace that this program records."""
    return tracer() is not None and bool(_api().get_current_span().get_span_context().is_valid)


def add_event(name: str, attributes: Attributes | None = None) -> None:
    """Add an event to the current span, where there is one."""
    if tracer() is not None:
        _api().get_current_span().add_event(name, dict(attributes or {}))


def context_within(span: Span | None) -> Context | None:
    """Return the context variables of a task that belongs to a span; None: those of the task that starts it."""
    if span is None:
        return None
    context = copy_context()
    context.run(_attach, span)
    return context


def context_without_trace() -> Context:
    """Return the context variables of a task that belongs to no trace, such as a renewal every few minutes."""
    context = copy_context()
    context.run(_quiet.set, True)
    return context


def _attach(span: Span) -> None:
    from opentelemetry.context import attach  # noqa: PLC0415 - who has a span has imported it

    attach(_api().set_span_in_context(span))


def _api() -> Any:
    return sys.modules["opentelemetry.trace"]


def _remote_span(remote: RemoteTrace) -> Any:
    api = _api()
    _, trace_id, span_id, flags = remote.traceparent.split("-")
    state = api.TraceState.from_header([remote.tracestate]) if remote.tracestate else None
    context = api.SpanContext(int(trace_id, 16), int(span_id, 16), True, api.TraceFlags(int(flags, 16) & 1), state)
    return api.NonRecordingSpan(context)
