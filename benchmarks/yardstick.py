"""What this machine itself can do, beside which a mesh's figures can be read anywhere.

`python -m benchmarks.yardstick PATH` serves empty gRPC calls on a unix socket.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import grpc
import uvloop

METHOD = "/yardstick/Empty"


class EmptyCall(Protocol):
    """Sends a byte and waits for one."""

    async def __call__(self) -> object:
        """Make one call."""
        ...


@asynccontextmanager
async def empty_calls() -> AsyncGenerator[EmptyCall]:
    """Return a unary call to a process whose gRPC server, of the library that the mesh uses, does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/grpc"
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.yardstick", address, stdout=asyncio.subprocess.PIPE
        )
        try:
            if server.stdout is None or not await server.stdout.readline():
                raise RuntimeError("the yardstick's server did not start; see above")
            async with grpc.aio.insecure_channel(f"unix:{address}") as channel:
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)

                async def ask() -> object:
                    return await call(b"1")

                yield ask
        finally:
            server.terminate()
            await server.wait()


async def _answer(_request: bytes, _context: object) -> bytes:
    return b"2"


async def serve(path: str) -> None:
    """Serve until the process is ended."""
    server = grpc.aio.server()
    service, _, method = METHOD[1:].partition("/")
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {method: grpc.unary_unary_rpc_method_handler(_answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:]))
