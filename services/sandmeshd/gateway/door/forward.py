"""Forwards what another service marked PUBLIC, as bytes; refuses everything else by name.

Principals that may only read get no field that is marked (secret): what it holds could be used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from sandmesh.api.options.v1 import options_pb2
from sandmesh.errors import MethodNotFound
from sandmeshd.auth.principal import current_principal
from sandmeshd.runtime.rpc.server import ServiceRegistration
from sandmeshd.runtime.telemetry.redaction import clear_secrets

Context = grpc.aio.ServicerContext[Any, Any]
Observer = Callable[[bytes], None]
Behaviour = Callable[[bytes, Context], Awaitable[bytes]]
Record = Callable[[MethodDescriptor, Behaviour], Behaviour]


def is_public(method: MethodDescriptor) -> bool:
    """Return whether any client may call a method."""
    visibility = method.GetOptions().Extensions[options_pb2.visibility]
    return bool(visibility == options_pb2.VISIBILITY_PUBLIC)


def forwarded(
    service: ServiceDescriptor,
    channel: grpc.aio.Channel,
    observers: Mapping[str, Observer] = MappingProxyType({}),
    record: Record = lambda _, behaviour: behaviour,
) -> ServiceRegistration:
    """Offer a service's public methods over the channel to the service that owns them; requests are one message.

    `observers` receive the responses of methods, by name; `record` wraps what serves a method.
    """
    methods = {
        method.name: _handler(service, method, channel, observers.get(method.name), record)
        for method in service.methods
    }
    handler = grpc.method_handlers_generic_handler(service.full_name, methods)
    return ServiceRegistration(service.full_name, lambda server: server.add_generic_rpc_handlers((handler,)))


def _handler(
    service: ServiceDescriptor,
    method: MethodDescriptor,
    channel: grpc.aio.Channel,
    observer: Observer | None,
    record: Record,
) -> grpc.RpcMethodHandler[Any, Any]:
    if method.server_streaming and is_public(method):
        return grpc.unary_stream_rpc_method_handler(_streaming(method, channel))
    behaviour = _behaviour(service, method, channel, observer)
    return grpc.unary_unary_rpc_method_handler(record(method, behaviour))


def _streaming(method: MethodDescriptor, channel: grpc.aio.Channel) -> Callable[[bytes, Context], AsyncIterator[bytes]]:
    path = f"/{method.containing_service.full_name}/{method.name}"
    upstream: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path)

    async def forward(request: bytes, context: Context) -> AsyncIterator[bytes]:
        async for response in upstream(request, timeout=context.time_remaining()):
            yield _readable(method, response)

    return forward


def _behaviour(
    service: ServiceDescriptor, method: MethodDescriptor, channel: grpc.aio.Channel, observer: Observer | None
) -> Behaviour:
    path = f"/{service.full_name}/{method.name}"
    if not is_public(method):
        return _refusing(path)
    upstream: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)

    async def forward(request: bytes, context: Context) -> bytes:
        remaining = context.time_remaining()
        response = await upstream(request, timeout=remaining)
        if observer is not None:
            observer(response)
        return _readable(method, response)

    return forward


def _readable(method: MethodDescriptor, response: bytes) -> bytes:
    """Return a response as its principal may have it."""
    if not current_principal().read_only:
        return response
    message = GetMessageClass(method.output_type).FromString(response)
    clear_secrets(message)
    return message.SerializeToString()


def _refusing(path: str) -> Behaviour:
    async def refuse(request: bytes, context: Context) -> bytes:
        raise MethodNotFound(f"{path} is not public: only services of the mesh call it", {"method": path})

    return refuse
