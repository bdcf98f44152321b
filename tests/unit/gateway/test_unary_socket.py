"""The socket for unary RPCs of a gateway, spoken to by the SDK's end and by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from sandmesh._calls.local_socket import connect
from sandmesh._client.unary_socket import UnarySocket
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.sandbox.v1.sandbox_pb2 import GetSandboxRequest as Get
from sandmesh.api.sandbox.v1.sandbox_pb2 import GetSandboxResponse as Got
from sandmesh.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    MeshUnavailable,
    MethodNotFound,
    ProtocolMismatch,
    Recovering,
    SandboxNotFound,
    Unauthenticated,
)
from sandmesh.shared.frames import MAX_SOCKET_MESSAGE, pack
from sandmeshd.auth.channels import open_channel
from sandmeshd.gateway import GatewaySettings, open_gateway
from sandmeshd.gateway.door.local_sockets import open_local_sockets
from sandmeshd.gateway.door.unary_socket import unary_sockets
from sandmeshd.runtime.rpc.interceptors import Around, Context
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server

from .stand_in import Allocator

Behaviour = Callable[[Get, Context], Awaitable[Got]]
GET = "/sandmesh.api.sandbox.v1.SandboxService/GetSandbox"
WATCH = "/sandmesh.api.sandbox.v1.SandboxService/WatchSandboxes"


def service(behaviour: Behaviour) -> ServiceRegistration:
    async def watch(request: Get, context: Context) -> AsyncIterator[Got]:
        yield Got()

    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetSandbox": grpc.unary_unary_rpc_method_handler(behaviour, Get.FromString, Got.SerializeToString),
        "WatchSandboxes": grpc.unary_stream_rpc_method_handler(watch, Get.FromString, Got.SerializeToString),
    }
    handler = grpc.method_handlers_generic_handler("sandmesh.api.sandbox.v1.SandboxService", methods)
    return ServiceRegistration("", lambda server: server.add_generic_rpc_handlers((handler,)))


async def known(request: Get, context: Context) -> Got:
    return Got(sandbox=sandbox_pb2.Sandbox(sandbox_id=request.sandbox_id))


def local_sockets(path: Path, behaviour: Behaviour, *arounds: Around) -> AbstractAsyncContextManager[None]:
    kinds = [unary_sockets([service(behaviour)], arounds)]
    return open_local_sockets([f"unix://{path}", "127.0.0.1:0"], kinds)


@asynccontextmanager
async def serving(path: Path, behaviour: Behaviour, *arounds: Around) -> AsyncGenerator[UnarySocket]:
    """Serve one method, and connect to it."""
    async with asyncio.timeout(20), local_sockets(path, behaviour, *arounds):
        socket = await dial(path)
        try:
            yield socket
        finally:
            socket.close()


async def dial(path: Path, *metadata: tuple[str, str]) -> UnarySocket:
    made = await connect(UnarySocket, str(path), metadata)
    assert made is not None
    return made


async def ask(socket: UnarySocket, sandbox_id: str = "sb_one", seconds: float = 10.0, method: str = GET) -> str:
    answer = await socket.request(method, Get(sandbox_id=sandbox_id).SerializeToString(), seconds)
    return Got.FromString(answer).sandbox.sandbox_id


async def test_answers_reach_who_asked_whatever_their_order(tmp_path: Path) -> None:
    second = asyncio.Event()

    async def slow_first(request: Get, context: Context) -> Got:
        if request.sandbox_id == "first":
            await second.wait()
        else:
            second.set()
        return await known(request, context)

    async with serving(tmp_path / "g", slow_first) as socket:
        answers = await asyncio.gather(ask(socket, "first"), ask(socket, "second"))
        assert list(answers) == ["first", "second"]
        assert (tmp_path / "g.asks").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "g.asks").exists()
    assert await connect(UnarySocket, str(tmp_path / "g"), ()) is None


async def test_errors_come_whole_and_defects_with_an_id_alone(tmp_path: Path) -> None:
    async def fail(request: Get, context: Context) -> Got:
        if request.sandbox_id == "later":
            raise Recovering("not yet", retry_after=0.5)
        if request.sandbox_id == "defect":
            raise RuntimeError("a secret")
        raise SandboxNotFound("none", {"sandbox_id": request.sandbox_id})

    async with serving(tmp_path / "g", fail) as socket:
        with pytest.raises(SandboxNotFound) as missing:
            await ask(socket)
        assert missing.value.facts == {"sandbox_id": "sb_one"}
        with pytest.raises(Recovering) as later:
            await ask(socket, "later")
        assert later.value.retry_after == 0.5
        with pytest.raises(InternalError) as defect:
            await ask(socket, "defect")
        assert "secret" not in str(defect.value)
        assert defect.value.facts["error_id"]


async def test_what_is_no_unary_rpc_or_lacks_a_field_is_refused_by_name(tmp_path: Path) -> None:
    async with serving(tmp_path / "g", known) as socket:
        with pytest.raises(MethodNotFound):
            await ask(socket, method="/sandmesh.api.sandbox.v1.SandboxService/Other")
        with pytest.raises(MethodNotFound, match="use gRPC"):
            await ask(socket, method=WATCH)
        with pytest.raises(InvalidArgument, match="sandbox_id"):
            await ask(socket, "")
        assert await ask(socket) == "sb_one"


class Held:
    """A method that answers when it is let; it knows how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.remaining: float | None = None

    async def get(self, request: Get, context: Context) -> Got:
        self.remaining = context.time_remaining()
        self.begun.set()
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await known(request, context)


async def test_a_deadline_ends_both_sides_and_the_connection_goes_on(tmp_path: Path) -> None:
    held = Held()
    async with serving(tmp_path / "g", held.get) as socket:
        with pytest.raises(DeadlineExceeded) as late:
            await ask(socket, seconds=0.05)
        assert late.value.changed
        await held.cancelled.wait()
        assert held.remaining is not None
        assert held.remaining <= 0.05
        held.let.set()
        assert await ask(socket) == "sb_one"


async def test_who_no_longer_waits_ends_what_was_asked(tmp_path: Path) -> None:
    held = Held()
    async with serving(tmp_path / "g", held.get) as socket:
        asking = asyncio.create_task(ask(socket))
        await held.begun.wait()
        asking.cancel()
        await held.cancelled.wait()
        held.let.set()
        assert await ask(socket) == "sb_one"


async def test_a_lost_connection_ends_what_was_asked_on_it(tmp_path: Path) -> None:
    held = Held()
    async with serving(tmp_path / "g", held.get) as socket:
        asking = asyncio.create_task(ask(socket))
        await held.begun.wait()
        socket.close()
        with pytest.raises(MeshUnavailable, match="closed under the request"):
            await asking
        await held.cancelled.wait()
        with pytest.raises(MeshUnavailable):
            await ask(socket)


async def test_a_retired_connection_closes_with_its_last_answer(tmp_path: Path) -> None:
    held = Held()
    async with serving(tmp_path / "g", held.get) as socket:
        asking = asyncio.create_task(ask(socket))
        await held.begun.wait()
        socket.retire()
        assert not socket.usable
        held.let.set()
        assert await asking == "sb_one"
        with pytest.raises(MeshUnavailable):
            await ask(socket)


async def test_the_end_of_a_gateway_answers_what_is_quick_and_refuses_the_rest(tmp_path: Path) -> None:
    quick, slow = Held(), Held()

    async def either(request: Get, context: Context) -> Got:
        return await (quick if request.sandbox_id == "quick" else slow).get(request, context)

    async with asyncio.timeout(20), AsyncExitStack() as stack:
        await stack.enter_async_context(local_sockets(tmp_path / "g", either))
        socket = await dial(tmp_path / "g")
        first, second = asyncio.create_task(ask(socket, "quick")), asyncio.create_task(ask(socket, "slow"))
        await asyncio.gather(quick.begun.wait(), slow.begun.wait())
        ending = asyncio.create_task(stack.pop_all().aclose())
        await asyncio.sleep(0)
        quick.let.set()
        assert await first == "quick"
        with pytest.raises(MeshUnavailable, match="the gateway ends") as ended:
            await second
        assert ended.value.changed
        await slow.cancelled.wait()
        await ending
        with pytest.raises(MeshUnavailable):
            await ask(socket)


async def test_each_rpc_is_let_in_or_refused_by_itself(tmp_path: Path) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def door(method: str, context: Context) -> AsyncGenerator[None]:
        shown = dict(context.invocation_metadata() or ()).get("authorization")
        seen.append(f"{method} {shown!s} {context.peer()}")
        if shown != "Bearer right" or len(seen) == 2:
            raise Unauthenticated("no")
        yield

    async with serving(tmp_path / "g", known, door):
        socket = await dial(tmp_path / "g", ("authorization", "Bearer right"))
        assert await ask(socket) == "sb_one"
        with pytest.raises(Unauthenticated):
            await ask(socket)
        assert await ask(socket) == "sb_one"
        socket.close()
    assert seen == [f"{GET} Bearer right unix:"] * 3


async def test_another_protocol_is_refused_by_name(tmp_path: Path) -> None:
    async with serving(tmp_path / "g", known):
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/g.asks")
        writer.write(pack(pb.SocketHello(protocol=2).SerializeToString()))
        length = int.from_bytes(await reader.readexactly(4), "big")
        answer = pb.SocketAnswer.FromString(await reader.read())
        assert (length, answer.id) == (answer.ByteSize(), 0)
        assert answer.error.message == str(ProtocolMismatch("this socket speaks protocol 1, not 2"))
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        pack(b"\xff\xff"),
        (MAX_SOCKET_MESSAGE + 1).to_bytes(4, "big"),
        pack(pb.SocketAsk(method=GET).SerializeToString()),
        pack(pb.SocketAsk(id=1, method=GET).SerializeToString()) * 2,
    ],
    ids=["no message", "too large", "no id", "an id twice"],
)
async def test_what_is_not_as_specified_ends_that_connection_alone(tmp_path: Path, sent: bytes) -> None:
    async with serving(tmp_path / "g", Held().get) as good:
        waiting = asyncio.create_task(ask(good))
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/g.asks")
        writer.write(pack(pb.SocketHello(protocol=1).SerializeToString()) + sent)
        assert await reader.read() == b""
        writer.close()
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_gateway_serves_what_is_public_and_nothing_else(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(20):
        enter = stack.enter_async_context
        registration = Allocator(tmp_path / "agent").registration()
        upstream = await enter(open_server([f"unix://{tmp_path}/i"], [registration]))
        channel = await enter(open_channel(upstream.addresses[0]))
        settings = GatewaySettings(listen=(f"unix://{tmp_path}/g",), http_listen=())
        await enter(open_gateway(settings, channel, channel))
        socket = await dial(tmp_path / "g")
        assert await ask(socket, "sb_any") == "sb_any"
        with pytest.raises(MethodNotFound, match="not public"):
            await ask(socket, method="/sandmesh.api.sandbox.v1.SandboxService/ResolveSandbox")
        socket.close()
