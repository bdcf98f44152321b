"""URLs of sandboxes end with the mesh's token that they were made with, and are shown to its holder only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
from google.protobuf.duration_pb2 import Duration

from sandmesh import errors
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.port.v1 import port_pb2, port_pb2_grpc
from sandmesh.api.token.v1 import token_pb2, token_pb2_grpc
from sandmesh.shared.wire_errors import translated

from .access_world import REQUESTS, Owned, World, open_world, public_methods

SERVER = """
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(b"begun"); self.wfile.flush()
        if self.path == "/open": time.sleep(600)
http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"""


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    """Run a mesh that asks about a token once an hour, so that only notices can end one."""
    async with asyncio.timeout(90), open_world(token_cache_seconds=3600.0) as opened:
        yield opened


@pytest.fixture
async def client() -> AsyncGenerator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def serving(world: World) -> Owned:
    """Return a sandbox of ada's in which a server listens at 8080."""
    owned = await world.own("ada")
    run = next(method for method in public_methods() if method.name == "RunCall")
    start = call_pb2.CallStart(sandbox_id=owned.sandbox_id, call_id="server", tool="run_ipython_cell")
    code = f"import subprocess; subprocess.Popen(['python3', '-c', {SERVER!r}])"
    start.arguments = json.dumps({"code": code}).encode()
    await world.send(run, call_pb2.RunCallRequest(start=start), "ada")
    return owned


async def expose(world: World, owned: Owned, who: str, seconds: int = 3600) -> port_pb2.ExposedPort:
    request = port_pb2.ExposePortRequest(sandbox_id=owned.sandbox_id, port=8080, ttl=Duration(seconds=seconds))
    with translated():
        made = await port_pb2_grpc.PortServiceStub(world.channel).ExposePort(request, metadata=world.metadata(who))
    return made.port


async def listed(world: World, owned: Owned, who: str) -> list[port_pb2.ExposedPort]:
    request = port_pb2.ListExposedPortsRequest(sandbox_id=owned.sandbox_id)
    with translated():
        answer = await port_pb2_grpc.PortServiceStub(world.channel).ListExposedPorts(
            request, metadata=world.metadata(who)
        )
    return list(answer.ports)


async def revoke(world: World, made: token_pb2.CreateTokenResponse) -> None:
    request = token_pb2.RevokeTokenRequest(token_id=made.token.token_id)
    await token_pb2_grpc.TokenServiceStub(world.channel).RevokeToken(request, metadata=world.metadata("root"))


async def status(client: aiohttp.ClientSession, url: str) -> int:
    async with client.get(url) as answer:
        await answer.read()
        return answer.status


async def eventually(client: aiohttp.ClientSession, url: str, wanted: int) -> None:
    async with asyncio.timeout(30):
        while await status(client, url) != wanted:  # noqa: ASYNC110 - nothing outside tells when a server listens
            await asyncio.sleep(0.1)


async def test_a_url_ends_with_the_token_that_made_it_and_no_other(world: World, client: aiohttp.ClientSession) -> None:
    lent, owned = await world.token("lent", "ada"), await serving(world)
    hers, others = await expose(world, owned, "ada"), await expose(world, owned, "lent")
    await eventually(client, hers.url, 200)
    assert await status(client, others.url) == 200
    async with client.get(f"{others.url}open") as open_answer:
        assert await open_answer.content.readany() == b"begun"
        await revoke(world, lent)
        with pytest.raises(aiohttp.ClientError):
            await open_answer.content.read()
    await eventually(client, others.url, 404)
    assert await status(client, hers.url) == 200
    left = {one.exposure_id for one in await listed(world, owned, "ada")}
    assert hers.exposure_id in left
    assert others.exposure_id not in left


async def test_a_url_lasts_no_longer_than_its_token(world: World) -> None:
    made = await world.token("brief", "ada", Duration(seconds=600))
    owned = await world.own("ada")
    exposed = await expose(world, owned, "brief", 86_400)
    assert exposed.expire_time.seconds <= made.token.expire_time.seconds


async def test_a_url_is_shown_to_the_token_that_made_it_only(world: World) -> None:
    owned = await world.own("ada")
    (made,) = await listed(world, owned, "ada")
    await world.guest("a guest", owned.sandbox_id)
    assert "/p/" in made.url
    # The root's is the mesh's own token, which nobody can revoke.
    assert [one.url for one in await listed(world, owned, "root")] == [made.url]
    for who in ("a reader of ada's", "a reader", "a guest", "an administrator"):
        (seen,) = await listed(world, owned, who)
        assert (seen.exposure_id, seen.port, seen.url) == (made.exposure_id, 8080, "")


async def test_a_reader_makes_no_url(world: World) -> None:
    owned = await world.own("ada")
    with pytest.raises(errors.PermissionDenied):
        await expose(world, owned, "a reader")


SHOWN: dict[str, set[str]] = {"ada": {"API_KEY", "OWN"}, "a reader of ada's": set(), "a reader": set()}


async def test_a_reader_gets_no_environment(world: World) -> None:
    owned = await world.own("ada")
    method = next(method for method in public_methods() if method.name == "GetSandbox")
    request = REQUESTS["SandboxService.GetSandbox"](owned)
    for who, shown in SHOWN.items():
        found: Any = await world.send(method, request, who)
        assert set(found.sandbox.spec.environment) == shown
