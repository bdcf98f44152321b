"""Which way a connection sends a unary RPC: the ask socket where there is one, gRPC elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from sandmesh._client.addresses import parse
from sandmesh._client.connection import Connection
from sandmesh._client.transport import Transport
from sandmesh._client.unary_socket import LARGEST_REQUEST
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.sandbox.v1.sandbox_pb2 import GetSandboxRequest as Get
from sandmesh.api.sandbox.v1.sandbox_pb2 import GetSandboxResponse as Got
from sandmesh.errors import MeshUnavailable
from sandmeshd.gateway.door.local_sockets import SocketContext, open_local_sockets
from sandmeshd.gateway.door.unary_socket import unary_sockets
from sandmeshd.runtime.rpc.interceptors import Context
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server


class Gateway:
    """One that says by which way it was asked: by gRPC's context or another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ways: list[str] = []
        self.begun = asyncio.Event()
        self.let = asyncio.Event()
        self.let.set()

    async def _get(self, request: Get, context: Context) -> Got:
        self.ways.append("socket" if isinstance(context, SocketContext) else "grpc")
        self.begun.set()
        await self.let.wait()
        return Got(sandbox=sandbox_pb2.Sandbox(sandbox_id=request.sandbox_id[:10]))

    def _registration(self) -> ServiceRegistration:
        handler = grpc.unary_unary_rpc_method_handler(self._get, Get.FromString, Got.SerializeToString)
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"GetSandbox": handler}
        generic = grpc.method_handlers_generic_handler("sandmesh.api.sandbox.v1.SandboxService", methods)
        return ServiceRegistration("t", lambda server: server.add_generic_rpc_handlers((generic,)))

    @asynccontextmanager
    async def serve(self, with_socket: bool = True) -> AsyncGenerator[None]:
        """Serve gRPC, and the ask socket beside it."""
        address, services = f"unix://{self.path}", [self._registration()]
        kinds = [unary_sockets(services, ())] * with_socket
        async with open_server([address], services, grace=0), open_local_sockets([address], kinds):
            yield


@asynccontextmanager
async def connected(*gateways: Gateway) -> AsyncGenerator[Connection]:
    connection = Connection((), [parse(f"unix://{gateway.path}") for gateway in gateways], None)
    try:
        async with asyncio.timeout(20):
            yield connection
    finally:
        await connection.close()


async def get(connection: Connection, sandbox_id: str = "sb_one") -> str:
    request = Get(sandbox_id=sandbox_id)
    return (await connection.ask(lambda stubs: stubs.sandboxes.GetSandbox, request, 10.0)).sandbox.sandbox_id


async def all_of(connection: Connection, ids: Sequence[str]) -> list[str]:
    return await asyncio.gather(*(get(connection, identifier) for identifier in ids))


async def test_the_socket_is_taken_where_there_is_one_and_one_connection_carries_all(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "g")
    async with gateway.serve(), connected(gateway) as connection:
        assert await all_of(connection, ["a", "b", "c"]) == ["a", "b", "c"]
    assert gateway.ways == ["socket"] * 3


async def test_where_the_socket_carries_everything_no_channel_of_grpc_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, made = Gateway(tmp_path / "g"), list[str]()
    real = grpc.aio.insecure_channel

    def counted(target: str, options: Sequence[tuple[str, int]]) -> grpc.aio.Channel:
        made.append(target)
        return real(target, options=options)

    monkeypatch.setattr(grpc.aio, "insecure_channel", counted)
    async with gateway.serve(), connected(gateway) as connection:
        await get(connection)
        assert not made
        await get(connection, "x" * LARGEST_REQUEST)
        assert made == [f"unix:{gateway.path}"]
    with pytest.raises(MeshUnavailable):
        await get(connection)


async def test_a_transport_that_was_closed_opens_no_channel_any_more(tmp_path: Path) -> None:
    transport = Transport(parse(f"unix://{tmp_path}/g"), ())
    await transport.close_channel()
    with pytest.raises(MeshUnavailable, match="closed before"):
        await transport.unary(lambda stubs: stubs.sandboxes.GetSandbox, Get(sandbox_id="sb_one"), 1.0)


async def test_grpc_is_taken_where_there_is_none_and_for_what_is_too_large(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "g")
    async with connected(gateway) as connection:
        async with gateway.serve(with_socket=False):
            assert await get(connection) == "sb_one"
        async with gateway.serve():
            assert await get(connection) == "sb_one"
            assert await get(connection, "x" * LARGEST_REQUEST) == "x" * 10
    assert gateway.ways == ["grpc", "socket", "grpc"]


async def test_a_gateway_that_is_back_is_asked_again(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "g")
    async with connected(gateway) as connection:
        for _ in range(2):
            async with gateway.serve():
                assert await get(connection) == "sb_one"
        gateway.let.clear()
        gateway.begun.clear()
        async with gateway.serve():
            asking = asyncio.create_task(get(connection))
            await gateway.begun.wait()
        # It may be sent again, and is: by what serves next.
        gateway.let.set()
        async with gateway.serve():
            assert await asking == "sb_one"
    assert gateway.ways == ["socket"] * 4


async def test_the_next_gateway_is_asked_where_one_does_not_answer(tmp_path: Path) -> None:
    first, second = Gateway(tmp_path / "1"), Gateway(tmp_path / "2")
    async with connected(first, second) as connection:
        async with first.serve():
            await get(connection)
        async with second.serve():
            assert await get(connection) == "sb_one"
            assert await get(connection) == "sb_one"
    assert (first.ways, second.ways) == (["socket"], ["socket"] * 2)


async def test_a_connection_that_is_suspended_asks_again_when_it_resumes(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "g")
    async with gateway.serve(), connected(gateway) as connection:
        await get(connection)
        await connection.suspend()
        asking = asyncio.create_task(get(connection, "later"))
        await asyncio.sleep(0)
        assert len(gateway.ways) == 1
        connection.resume()
        assert await asking == "later"
        gateway.let.clear()
        gateway.begun.clear()
        under_way = asyncio.create_task(get(connection))
        await gateway.begun.wait()
        await connection.close()
        with pytest.raises(MeshUnavailable):
            await under_way
    assert gateway.ways == ["socket"] * 3


async def test_a_symbolic_link_to_a_gateways_socket_leads_to_the_sockets_beside_it(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "g")
    (tmp_path / "elsewhere").mkdir()
    link = Gateway(tmp_path / "elsewhere" / "link")
    link.path.symlink_to(gateway.path)
    async with gateway.serve(), connected(link) as connection:
        assert await get(connection) == "sb_one"
    assert gateway.ways == ["socket"]
