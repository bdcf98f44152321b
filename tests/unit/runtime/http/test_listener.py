"""The HTTP listener over real sockets."""

from __future__ import annotations

import aiohttp
import grpc
import pytest
from aiohttp import web

from sandmesh.errors import MeshUnavailable
from sandmeshd.runtime.http import HttpAddresses, open_listener


async def get(address: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(address + path) as response:
        return response.status, await response.text()


async def test_the_listener_says_that_it_lives() -> None:
    async with open_listener(HttpAddresses(("127.0.0.1:0",))) as listener:
        (address,) = await listener.open()
        assert await get(address, "/healthz") == (200, "ok\n")
        assert await listener.open() == (address,)


async def test_pages_of_others_are_served() -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    def add(application: web.Application) -> None:
        application.router.add_get("/hello", hello)

    async with open_listener(HttpAddresses(("127.0.0.1:0",))) as listener:
        listener.add(add)
        (address,) = await listener.open()
        assert await get(address, "/hello") == (200, "hello")


async def test_a_grpc_client_that_dials_it_leaves_no_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with open_listener(HttpAddresses(("127.0.0.1:0",))) as listener:
        (address,) = await listener.open()
        async with grpc.aio.insecure_channel(address.removeprefix("http://")) as channel:
            state = channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await channel.wait_for_state_change(state)
                state = channel.get_state()
    assert [record.levelname for record in caplog.records if record.exc_info] == []
    messages = {record.getMessage() for record in caplog.records}
    assert "what 127.0.0.1 sent is not valid HTTP/1: gRPC clients connect to the mesh's base_url" in messages


async def test_a_door_without_addresses_stays_closed() -> None:
    async with open_listener(HttpAddresses(())) as listener:
        assert await listener.open() == ()


async def test_an_address_in_use_is_refused_by_name() -> None:
    async with open_listener(HttpAddresses(("127.0.0.1:0",))) as first:
        (address,) = await first.open()
        async with open_listener(HttpAddresses((address.removeprefix("http://"),))) as second:
            with pytest.raises(MeshUnavailable, match="in use"):
                await second.open()
