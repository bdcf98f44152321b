"""A channel to several servers of one service: one is used until it does not answer, then the next."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

from sandmesh.api.audit.v1 import audit_pb2
from sandmesh.api.image.v1 import image_pb2
from sandmesh.api.quota.v1 import quota_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.secret.v1 import secret_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.api.template.v1 import template_pb2
from sandmesh.api.token.v1 import token_pb2

_FILES = (audit_pb2, image_pb2, quota_pb2, sandbox_pb2, secret_pb2, session_pb2, template_pb2, token_pb2)


def _repeatable() -> frozenset[str]:
    services: list[ServiceDescriptor] = [
        service for file in _FILES for service in file.DESCRIPTOR.services_by_name.values()
    ]
    return frozenset(
        f"/{service.full_name}/{method.name}"
        for service in services
        for method in service.methods
        if method.GetOptions().idempotency_level != MethodOptions.IDEMPOTENCY_UNKNOWN
    )


class _Failover:
    """What generated stubs use of a channel, over several; each process begins with a random one."""

    def __init__(self, channels: Sequence[grpc.aio.Channel]) -> None:
        self._channels = channels
        self._current = random.Random().randrange(len(channels))  # noqa: S311 - spreads load, hides nothing
        self._repeatable = _repeatable()

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: object
    ) -> Callable[..., Awaitable[Any]]:
        """Return a method that tries the other servers where the one in use is not there and it may be repeated."""
        calls = [channel.unary_unary(method, request_serializer, response_deserializer) for channel in self._channels]

        async def call(request: Any, *, timeout: float | None = None, metadata: Any = None) -> Any:
            ends = None if timeout is None else time.monotonic() + timeout
            for attempt in range(len(calls)):
                index = self._current
                left = None if ends is None else max(0.001, ends - time.monotonic())
                try:
                    return await calls[index](request, timeout=left, metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    if error.code() != grpc.StatusCode.UNAVAILABLE:
                        raise
                    self._leave(index)
                    if attempt == len(calls) - 1 or method not in self._repeatable:
                        raise
            return None  # there is at least one server, so the loop returned or raised

        return call

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return a streaming method of the server in use: the reader of a stream that broke requests it again."""

        async def call(*call_args: Any, **call_kwargs: Any) -> AsyncIterator[Any]:
            index = self._current
            try:
                stream = self._channels[index].unary_stream(method, *args, **kwargs)
                async for response in stream(*call_args, **call_kwargs):
                    yield response
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.UNAVAILABLE:
                    self._leave(index)
                raise

        return call

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return the method of the server in use."""
        return self._channels[self._current].stream_unary(method, *args, **kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return the method of the server in use."""
        return self._channels[self._current].stream_stream(method, *args, **kwargs)

    def _leave(self, index: int) -> None:
        if self._current == index:
            self._current = (index + 1) % len(self._channels)


def failover(channels: Sequence[grpc.aio.Channel]) -> grpc.aio.Channel:
    """Return one channel over several to servers of the same service."""
    return channels[0] if len(channels) == 1 else cast("grpc.aio.Channel", _Failover(channels))
