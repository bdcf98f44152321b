"""Tokens that end while they are in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from sandmesh import BaseSandboxAsync
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.api.token.v1 import token_pb2, token_pb2_grpc
from sandmesh.errors import Unauthenticated
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.channels import open_channel
from tests.mesh.cli.test_apart import apart
from tests.mesh.tenants.access_world import World, begin, open_world

__all__ = ["apart"]  # a fixture


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    """Run a mesh that asks about a token once an hour, so that only notices can end one."""
    async with asyncio.timeout(60), open_world(token_cache_seconds=3600.0) as opened:
        yield opened


async def revoke(world: World, token_id: str) -> None:
    stub = token_pb2_grpc.TokenServiceStub(world.channel)
    request = token_pb2.RevokeTokenRequest(token_id=token_id)
    await stub.RevokeToken(request, metadata=world.metadata("root"))


async def read_to_end(stream: Any) -> None:
    with translated():
        while await stream.read() is not grpc.aio.EOF:
            pass


async def open_streams(world: World, who: str, sandbox_id: str) -> list[Any]:
    """Start a call on a stream of its own and one on a shared stream; both print."""
    stub = call_pb2_grpc.CallServiceStub(world.channel)
    metadata = world.metadata(who)
    alone = stub.RunCall(call_pb2.RunCallRequest(start=begin(sandbox_id).start), metadata=metadata)
    shared: Any = stub.Multiplex(metadata=metadata)
    await shared.write(call_pb2.MultiplexRequest(frames=[begin(sandbox_id)]))
    await shared.read()
    await alone.read()
    return [alone, shared]


async def test_a_token_revoked_in_mid_use_ends_its_streams_and_no_others(world: World) -> None:
    short = await world.token("short", "ada")
    owned = await world.own("ada")
    ending = await open_streams(world, "short", owned.sandbox_id)
    staying = await open_streams(world, "ada", owned.sandbox_id)
    await revoke(world, short.token.token_id)
    for stream in ending:
        with pytest.raises(Unauthenticated, match="revoked") as caught:
            await read_to_end(stream)
        assert caught.value.facts["token"] == "revoked"  # noqa: S105 - no password
    for stream in staying:
        assert await stream.read()
        stream.cancel()


async def test_the_call_of_a_revoked_token_goes_on_for_its_owner(world: World) -> None:
    short = await world.token("short", "ada")
    owned = await world.own("ada")
    stub = call_pb2_grpc.CallServiceStub(world.channel)
    frame = begin(owned.sandbox_id)
    stream: Any = stub.RunCall(call_pb2.RunCallRequest(start=frame.start), metadata=world.metadata("short"))
    await stream.read()
    await revoke(world, short.token.token_id)
    with pytest.raises(Unauthenticated):
        await read_to_end(stream)
    attach = call_pb2.Attach(sandbox_id=owned.sandbox_id, call_id=frame.call_id)
    again = stub.AttachCall(call_pb2.AttachCallRequest(attach=attach), metadata=world.metadata("ada"))
    while not (await anext(aiter(again))).batch.events:
        pass
    again.cancel()


async def test_a_token_that_expires_in_mid_use_ends_its_streams(world: World) -> None:
    owned = await world.own("ada")
    await world.token("brief", "ada", Duration(seconds=6))
    for stream in await open_streams(world, "brief", owned.sandbox_id):
        with pytest.raises(Unauthenticated, match="expired"):
            await read_to_end(stream)


async def test_a_box_says_that_its_token_was_revoked(world: World) -> None:
    short = await world.token("short", "ada")
    async with BaseSandboxAsync(base_url=world.address, bearer_token=world.secrets["ada"]) as owner:
        box = BaseSandboxAsync(owner.sandbox_id, base_url=world.address, bearer_token=short.secret)
        await box.start()
        running = asyncio.create_task(box.run_shell_command("sleep 600"))
        assert (await box.run_ipython_cell("1+1")).text.strip() == "2"
        await revoke(world, short.token.token_id)
        with pytest.raises(Unauthenticated, match="revoked"):
            await running
        with pytest.raises(Unauthenticated, match="revoked"):
            await box.get_info()
        await box.close()


async def test_a_token_is_revoked_in_mid_use_where_services_run_apart(apart: str) -> None:
    async with asyncio.timeout(60), open_channel(apart) as channel:
        world = World(channel, f"grpc://{apart}")
        token = await world.token("ada", "ada")
        owned = await world.own("ada")
        streams = await open_streams(world, "ada", owned.sandbox_id)
        await revoke(world, token.token.token_id)
        for stream in streams:
            with pytest.raises(Unauthenticated, match="revoked"):
                await read_to_end(stream)
        del world.secrets["ada"]
        release = session_pb2.ReleaseSessionRequest(user_id="ada", session_id=owned.session_id)
        await session_pb2_grpc.SessionServiceStub(channel).ReleaseSession(release)
