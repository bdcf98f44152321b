"""A mesh as an older one would be: a gRPC relay before it that has some services or methods not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import grpc.aio


class _Relay(grpc.GenericRpcHandler):
    """Passes on every method, but for those that it does not have."""

    def __init__(self, channel: grpc.aio.Channel, missing: Sequence[str]) -> None:
        self._channel = channel
        self._missing = missing

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method

        async def pass_on(requests: AsyncIterator[bytes], context: Any) -> AsyncGenerator[bytes]:
            if any(name in method for name in self._missing):
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"Method not found: {method}")
            channel = cast("Any", self._channel)
            call = channel.stream_stream(method)(requests, metadata=context.invocation_metadata())
            try:
                async for answer in call:
                    yield answer
            except grpc.aio.AioRpcError as error:
                context.set_trailing_metadata(error.trailing_metadata())
                await context.abort(error.code(), error.details())

        return cast("Any", grpc).stream_stream_rpc_method_handler(pass_on)


@asynccontextmanager
async def older_mesh(address: str, missing: Sequence[str]) -> AsyncGenerator[str]:
    """Serve the mesh at an address without methods whose paths have one of these in them; yield its address."""
    async with grpc.aio.insecure_channel(address.removeprefix("grpc://")) as channel:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([_Relay(channel, missing)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            await server.stop(None)
