"""A channel to services of the same process, without a network between.

What is called is what a server would call, with messages that are copied as they are on the wire: only the composition
root knows the difference. Errors arrive as the exceptions they were raised as.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

import grpc

from sandmesh.errors import DeadlineExceeded, SandmeshError
from sandmeshd.runtime.rpc.deserialization import parse
from sandmeshd.runtime.rpc.handlers import HandlerCollector
from sandmeshd.runtime.rpc.interceptors import unexpected
from sandmeshd.runtime.rpc.request_ids import ids_of
from sandmeshd.runtime.rpc.server import ServiceRegistration
from sandmeshd.runtime.rpc.traces import local_span
from sandmeshd.runtime.rpc.validation import require

Convert = Callable[[Any], Any]


def local_channel(services: Sequence[ServiceRegistration]) -> grpc.aio.Channel:
    """Return a channel to services of this process, for methods whose request is one message."""
    return cast("grpc.aio.Channel", _LocalChannel(HandlerCollector(services)))


class _Context:
    """What servicers use of a ServicerContext."""

    def __init__(self, timeout: float | None) -> None:
        self._ends = None if timeout is None else time.monotonic() + timeout

    def time_remaining(self) -> float | None:
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())


class _LocalChannel:
    """The part of a grpc.aio.Channel that stubs of such methods use."""

    def __init__(self, handlers: HandlerCollector) -> None:
        self._handlers = handlers

    def unary_unary(
        self, method: str, request_serializer: Convert = bytes, response_deserializer: Convert = bytes, **_: object
    ) -> Callable[..., Awaitable[Any]]:
        handlers = self._handlers

        async def call(request: Any, *, timeout: float | None = None, **_: object) -> Any:
            handler = handlers.find(method)
            message = parse(cast("Convert", handler.request_deserializer), request_serializer(request), method)
            require(message)
            with ids_of(message), local_span(method):
                answer = await _within(timeout, method, cast("Any", handler.unary_unary)(message, _Context(timeout)))
            return response_deserializer(cast("Convert", handler.response_serializer)(answer))

        return call

    def unary_stream(
        self, method: str, request_serializer: Convert = bytes, response_deserializer: Convert = bytes, **_: object
    ) -> Callable[..., AsyncIterator[Any]]:
        handlers = self._handlers

        async def call(request: Any, *, timeout: float | None = None, **_: object) -> AsyncIterator[Any]:
            handler = handlers.find(method)
            message = parse(cast("Convert", handler.request_deserializer), request_serializer(request), method)
            require(message)
            async for answer in cast("Any", handler.unary_stream)(message, _Context(timeout)):
                yield response_deserializer(cast("Convert", handler.response_serializer)(answer))

        return call

    def stream_unary(self, *_: object, **__: object) -> None:
        """Refuse: no service of a mesh takes a stream from another in one process."""

    stream_stream = stream_unary


async def _within(timeout: float | None, method: str, work: Awaitable[Any]) -> Any:
    try:
        if timeout is None:
            return await work
        async with asyncio.timeout(timeout):
            return await work
    except SandmeshError:
        raise
    except TimeoutError:
        raise DeadlineExceeded(f"{method} did not answer in time", changed=True) from None
    except Exception:  # as the interceptor of a server: what is unexpected leaves with an id to look up
        raise unexpected(method) from None
