"""All simulated nodes at one address: which of them an RPC is for is in its metadata."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import grpc
from google.protobuf.message_factory import GetMessageClass

from benchmarks.fleet.nodes import SimulatedNode
from sandmesh.api.driver.v1 import driver_pb2
from sandmeshd.auth.channels import open_channel
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server

Call = Callable[..., Any]
Context = grpc.aio.ServicerContext[Any, Any]

_NODE: Final = "node"
_SERVICE = driver_pb2.DESCRIPTOR.services_by_name["DriverService"]


@asynccontextmanager
async def serve_nodes(nodes: Sequence[SimulatedNode], folder: Path) -> AsyncGenerator[None]:
    """Serve nodes in a folder until the block ends."""
    # The part of the interface that an allocator calls is all of it that is called.
    servicers = {node.node_id: DriverServicer(cast("Driver", node)) for node in nodes}
    methods = {method.name: _handler(servicers, method.name) for method in _SERVICE.methods}
    handler = grpc.method_handlers_generic_handler(_SERVICE.full_name, methods)
    own = ServiceRegistration(_SERVICE.full_name, lambda server: server.add_generic_rpc_handlers((handler,)))
    async with open_server([_address(folder)], [own]):
        yield


def _handler(servicers: Mapping[str, DriverServicer], name: str) -> grpc.RpcMethodHandler[Any, Any]:
    method = _SERVICE.methods_by_name[name]
    forms: dict[str, Any] = {
        "request_deserializer": GetMessageClass(method.input_type).FromString,
        "response_serializer": GetMessageClass(method.output_type).SerializeToString,
    }

    def behaviour(context: Context) -> Any:
        return getattr(servicers[str(dict(context.invocation_metadata() or ())[_NODE])], name)

    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        async for response in behaviour(context)(request, context):
            yield response

    async def unary(request: Any, context: Context) -> Any:
        return await behaviour(context)(request, context)

    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(stream, **forms)
    return grpc.unary_unary_rpc_method_handler(unary, **forms)


@asynccontextmanager
async def remote_nodes(names: Sequence[str], folder: Path) -> AsyncGenerator[Mapping[str, Driver]]:
    """Yield the nodes that are served in a folder, by their names, over one connection."""
    async with open_channel(_address(folder)) as channel:
        yield {name: RemoteDriver(cast("grpc.aio.Channel", _NodeChannel(channel, name))) for name in names}


class _NodeChannel:
    """What a stub of a driver uses of a channel, with the node's name in each RPC."""

    def __init__(self, channel: grpc.aio.Channel, name: str) -> None:
        self._channel = channel
        self._metadata = ((_NODE, name),)

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Call:
        """Return a method whose RPCs name the node."""
        return partial(cast("Call", self._channel.unary_unary(method, *args, **kwargs)), metadata=self._metadata)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Call:
        """Return a streaming method whose RPCs name the node."""
        return partial(cast("Call", self._channel.unary_stream(method, *args, **kwargs)), metadata=self._metadata)


def _address(folder: Path) -> str:
    return f"unix://{folder}/nodes"
