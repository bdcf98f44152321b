"""Forwards what another service marked PUBLIC, as bytes; refuses everything else by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from sandmesh.api.options.v1 import options_pb2
from sandmesh.errors import MethodNotFound
from sandmeshd.runtime.rpc.server import Registration

Context = grpc.aio.ServicerContext[Any, Any]
Heed = Callable[[bytes], None]
Behaviour = Callable[[bytes, Context], Awaitable[bytes]]


def is_public(method: MethodDescriptor) -> bool:
    """Return whether any client may call a method."""
    visibility = method.GetOptions().Extensions[options_pb2.visibility]
    return bool(visibility == options_pb2.VISIBILITY_PUBLIC)


def forwarded(
    service: ServiceDescriptor, channel: grpc.aio.Channel, heeded: Mapping[str, Heed] = MappingProxyType({})
) -> Registration:
    """Offer a service's public methods over the channel to the service that owns them; requests are one message.

    `heeded` names methods whose answers somebody here wants to see on their way.
    """
    methods = {method.name: _handler(service, method, channel, heeded.get(method.name)) for method in service.methods}
    handler = grpc.method_handlers_generic_handler(service.full_name, methods)
    return Registration(service.full_name, lambda server: server.add_generic_rpc_handlers((handler,)))


def _handler(
    service: ServiceDescriptor, method: MethodDescriptor, channel: grpc.aio.Channel, heed: Heed | None
) -> grpc.RpcMethodHandler[Any, Any]:
    if method.server_streaming and is_public(method):
        return grpc.unary_stream_rpc_method_handler(_streaming(f"/{service.full_name}/{method.name}", channel))
    return grpc.unary_unary_rpc_method_handler(_behaviour(service, method, channel, heed))


def _streaming(path: str, channel: grpc.aio.Channel) -> Callable[[bytes, Context], AsyncIterator[bytes]]:
    upstream: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path)

    async def forward(request: bytes, context: Context) -> AsyncIterator[bytes]:
        async for response in upstream(request, timeout=context.time_remaining()):
            yield response

    return forward


def _behaviour(
    service: ServiceDescriptor, method: MethodDescriptor, channel: grpc.aio.Channel, heed: Heed | None
) -> Behaviour:
    path = f"/{service.full_name}/{method.name}"
    if not is_public(method):
        return _refusing(path)
    upstream: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)

    async def forward(request: bytes, context: Context) -> bytes:
        remaining = context.time_remaining()
        response = await upstream(request, timeout=remaining)
        if heed is not None:
            heed(response)
        return response

    return forward


def _refusing(path: str) -> Behaviour:
    async def refuse(request: bytes, context: Context) -> bytes:
        raise MethodNotFound(f"{path} is not public: only services of the mesh call it", {"method": path})

    return refuse
