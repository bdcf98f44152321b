"""The span of an RPC at the service that serves it, below that of its caller; and its trace in the log's context."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import cache

import structlog

from sandmesh.shared.traces.context import (
    TRACEPARENT,
    TRACESTATE,
    RemoteTrace,
    current_trace,
    passing_on,
    read_trace,
    span_of,
    step_of,
)
from sandmeshd.runtime.rpc.interceptors import Around, Context
from sandmeshd.runtime.rpc.observation import is_streaming

_OWN = "sandmesh."


def traced(*, begins: bool = False) -> Around:
    """Make each unary RPC a span; with `begins` also those whose caller names no trace, so that they begin one.

    It comes after what checks who is calling: strangers cause no spans.
    """

    @asynccontextmanager
    async def around(method: str, context: Context) -> AsyncGenerator[None]:
        name = method.removeprefix("/")
        remote = _read(dict(context.invocation_metadata() or ()))
        with _span(name, remote, begins=begins):
            note_trace()
            yield

    return around


def local_span(method: str) -> AbstractContextManager[object]:
    """Return the span of an RPC to a service of the same process."""
    name = method.removeprefix("/")
    return step_of(name, _attributes(name), "SERVER")


def note_trace() -> None:
    """Bind the ids of the present trace and span to the context of the log's lines."""
    trace = current_trace()
    if trace is not None:
        _, trace_id, span_id, _ = trace.traceparent.split("-")
        structlog.contextvars.bind_contextvars(trace_id=trace_id, span_id=span_id)


def _span(name: str, remote: RemoteTrace | None, *, begins: bool) -> AbstractContextManager[object]:
    if is_streaming(name) or not name.startswith(_OWN):
        # How long it is open says nothing; calls on it have spans of their own.
        return nullcontext() if remote is None else passing_on(remote)
    if remote is None and not begins:
        return nullcontext()
    return span_of(name, "SERVER", _attributes(name), remote=remote)


@cache
def _attributes(name: str) -> Mapping[str, str]:
    service, _, method = name.rpartition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}


def _read(metadata: Mapping[str, object]) -> RemoteTrace | None:
    parent = metadata.get(TRACEPARENT)
    return None if parent is None else read_trace(parent, metadata.get(TRACESTATE, ""))
