"""Around every RPC: its ids go with every line of the log, and it is counted.

An RPC has a request id: the one that its caller sends as `x-request-id`, or a new one. Services send it on, so that one
request has one id in the logs of all of them.
"""

from __future__ import annotations

import functools
import re
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import grpc
import structlog
from google.protobuf import descriptor_pool

from sandmesh.errors import SandmeshError
from sandmesh.shared.traces.context import current_trace, metadata_of
from sandmeshd.runtime.rpc.interceptors import Around, Context
from sandmeshd.runtime.rpc.outgoing_metadata import metadata_interceptors
from sandmeshd.runtime.telemetry.metrics import RpcMetrics

HEADER = "x-request-id"

_SAFE = re.compile(r"[\w.:/-]{1,128}")

log = structlog.get_logger()


def observed(metrics: RpcMetrics) -> Around:
    """Bind each RPC's request id to the log's context, and count it by how it ended."""

    @asynccontextmanager
    async def around(method: str, context: Context) -> AsyncGenerator[None]:
        name = method.removeprefix("/")
        began = time.monotonic()
        reason = "OK"
        open_rpcs = metrics.open_of(name)
        open_rpcs.inc()
        with structlog.contextvars.bound_contextvars(request_id=_request_id(context)):
            try:
                yield
            except BaseException as error:
                reason = _reason(error)
                raise
            finally:
                seconds = time.monotonic() - began
                open_rpcs.dec()
                _count(metrics, name, reason, seconds)
                log.debug("an RPC ended", method=name, reason=reason, seconds=round(seconds, 6))

    return around


def _count(metrics: RpcMetrics, name: str, reason: str, seconds: float) -> None:
    metrics.ended_of(name, reason).inc()
    if not is_streaming(name):
        metrics.seconds_of(name).observe(seconds)


@functools.cache
def is_streaming(name: str) -> bool:
    """Return whether a method has a stream: how long that is open says nothing of the method's speed."""
    try:
        method = descriptor_pool.Default().FindMethodByName(name.replace("/", "."))
    except KeyError:
        return False  # none of the mesh's own
    return bool(method.client_streaming or method.server_streaming)


def _reason(error: BaseException) -> str:
    if isinstance(error, SandmeshError):
        return error.reason
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code().name
    return "INTERNAL" if isinstance(error, Exception) else "CANCELLED"


def _request_id(context: Context) -> str:
    value = dict(context.invocation_metadata() or ()).get(HEADER, "")
    # What a client sends goes into logs: only what cannot break a line or fill a disk.
    return value if isinstance(value, str) and _SAFE.fullmatch(value) else secrets.token_hex(8)


def correlation_interceptors() -> list[grpc.aio.ClientInterceptor]:
    """Return interceptors that forward the request's id and its trace with a channel's unary requests."""
    return metadata_interceptors(_correlation)


def _correlation(_: str) -> list[tuple[str, str]]:
    found = structlog.contextvars.get_contextvars().get("request_id")
    return [*([(HEADER, str(found))] if found else ()), *metadata_of(current_trace())]
