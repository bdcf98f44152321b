"""Async context managers around RPCs of all four shapes, and the one that turns exceptions into statuses."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeAlias, cast

import grpc
import structlog
from google.protobuf.message import Message

from sandmesh.errors import InternalError, SandmeshError
from sandmesh.shared.wire_errors import code_of, from_rpc_error, to_trailers
from sandmeshd.runtime.processes.descriptors import lack_of_descriptors
from sandmeshd.runtime.rpc.deserialization import WellFormed, check_form, tolerant
from sandmeshd.runtime.rpc.request_ids import bind_ids
from sandmeshd.runtime.rpc.validation import require

Context = grpc.aio.ServicerContext[Any, Any]
Around = Callable[[str, Context], AbstractAsyncContextManager[None]]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

HEARING_SECONDS = 1.0
"""How long a stream that is refused is kept for its client's first message."""

log = structlog.get_logger()


@asynccontextmanager
async def errors_as_status(method: str, context: Context) -> AsyncGenerator[None]:
    """End an RPC with the status that an exception stands for; what is unexpected leaves as INTERNAL with an id."""
    try:
        yield
    except SandmeshError as error:
        await _abort(context, error)
    except grpc.aio.AioRpcError as error:
        await _abort(context, from_rpc_error(error))
    except grpc.aio.AbortError:
        raise
    except Exception:
        await _abort(context, unexpected(method))


def unexpected(method: str) -> SandmeshError:
    """Log the exception that is being handled, and return what may leave of it: an id to look up, or what it lacks."""
    lack = lack_of_descriptors(sys.exception())
    if lack is not None:
        log.error("an RPC found no free file descriptor", method=method)
        return lack
    error_id = secrets.token_hex(6)
    log.exception("an RPC failed unexpectedly", method=method, error_id=error_id)
    return InternalError(f"the mesh has a defect; its log names it {error_id}", {"error_id": error_id}, changed=True)


async def _abort(context: Context, error: SandmeshError) -> None:
    await context.abort(code_of(error), error.message, to_trailers(error))


def nested(arounds: Sequence[Around]) -> Around:
    """Make one of several, the first outermost."""

    @asynccontextmanager
    async def all_of_them(method: str, context: Context) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for around in arounds:
                await stack.enter_async_context(around(method, context))
            yield

    return all_of_them


class AroundInterceptor(grpc.aio.ServerInterceptor):
    """Puts an async context manager around every RPC, whatever its shape, after its required fields were checked."""

    def __init__(self, around: Around) -> None:
        self._around = around

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wrap the method's handler; an unknown method has none and gRPC answers it."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return within(handler, self._around, str(handler_call_details.method))


def within(handler: Handler, around: Around, method: str) -> Handler:
    """Put an async context manager around a method's handler, whatever its shape."""
    make: Any = getattr(grpc, f"{_shape(handler)}_rpc_method_handler")
    behaviour: Any = getattr(handler, _shape(handler))
    wrapped = _streaming(behaviour, around, method) if handler.response_streaming else _unary(behaviour, around, method)
    if handler.request_streaming:
        wrapped = _heard(behaviour, around, method)
    made: Handler = make(wrapped, tolerant(handler.request_deserializer), handler.response_serializer)
    return made


def _shape(handler: Handler) -> str:
    names = {True: "stream", False: "unary"}
    return f"{names[handler.request_streaming]}_{names[handler.response_streaming]}"


def _unary(behaviour: Any, around: Around, method: str) -> Callable[[Any, Context], Awaitable[Any]]:
    async def run(request: Any, context: Context) -> Any:
        async with around(method, context):
            _check(request, method)
            return await behaviour(request, context)

    return run


def _check(request: Any, method: str) -> None:
    check_form(request, method)
    if isinstance(request, Message):
        require(request)
        bind_ids(request)


def _streaming(behaviour: Any, around: Around, method: str) -> Callable[[Any, Context], Awaitable[None]]:
    async def run(request: Any, context: Context) -> None:
        async with around(method, context):
            _check(request, method)
            await _answer(behaviour, request, context)

    return run


async def _answer(behaviour: Any, request: Any, context: Context) -> None:
    answer = behaviour(request, context)
    if not hasattr(answer, "__aiter__"):
        await answer
        return
    async for response in answer:
        await context.write(response)


def _heard(behaviour: Any, around: Around, method: str) -> Callable[[Any, Context], Awaitable[None]]:
    """Wrap one that takes a stream: who is refused is heard out first.

    A client in Python that is still writing its first message would be args of a failed write instead of the refusal
    (https://github.com/grpc/grpc/issues/36066).
    """

    async def run(requests: AsyncIterator[Any], context: Context) -> None:
        hearing = _Hearing(context, requests)
        async with around(method, cast("Context", hearing)):
            hearing.over = True
            await _answer(behaviour, WellFormed(requests, method), context)

    return run


class _Hearing:
    """The context of an RPC that is refused once its client's first message is here, or a moment has passed."""

    def __init__(self, context: Context, messages: AsyncIterator[Any]) -> None:
        self._context = context
        self._messages = messages
        self.over = False
        """Whether the RPC was let in: what reads its messages from now on is not disturbed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def abort(self, *args: Any) -> None:
        if not self.over:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARING_SECONDS):
                    await anext(aiter(self._messages), None)
        await self._context.abort(*args)
