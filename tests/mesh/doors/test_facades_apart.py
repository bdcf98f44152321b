"""Doors in processes of their own, as clients of a mesh that has none."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import aiohttp
import pytest
import pytest_asyncio
import uvloop

from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.doors.e2b.e2b_world import World, inside
from tests.unit.store.waiting import until

SERVER = Path(__file__).parents[1] / "network" / "port_server.py"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


@dataclass(frozen=True)
class Apart:
    """A mesh with an address where tokens are asked for, and no doors."""

    mesh: Mesh
    url: str
    token: str
    state: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def apart(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Apart]:
    """Run one mesh for all tests."""
    async with run_mesh(listen=("127.0.0.1:0",), require_token=True) as mesh:
        async with MeshAsync(mesh.addresses[0]) as client:
            token = (await client.tokens.create("doors", scope="admin")).secret
        yield Apart(mesh, f"grpc://{mesh.addresses[1]}", token, tmp_path_factory.mktemp("state"))


@asynccontextmanager
async def facade(apart: Apart, name: str, *options: str) -> AsyncGenerator[str]:
    """Run `sandmeshd facade`. Yields what it prints."""
    command = [sys.executable, "-m", "sandmeshd.cli.service", "facade", name, "--base-url", apart.url, *options]
    folders = {f"SANDMESH_{kind}_DIRECTORY": str(apart.state / kind.lower()) for kind in ("STATE", "RUNTIME")}
    own = {"SANDMESH_TOKEN": apart.token, **folders}
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env={**os.environ, **own})
    assert process.stdout is not None
    try:
        said = await asyncio.wait_for(process.stdout.readuntil(f"serving {name}\n".encode()), 60)
        yield said.decode()
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 20)


async def user_token(apart: Apart, user: str, form: Literal["mesh", "e2b"] = "mesh") -> str:
    """Return a user's token."""
    async with MeshAsync(apart.mesh.addresses[0]) as client:
        return (await client.tokens.create(user, user_id=user.partition("-")[0], form=form)).secret


async def test_the_door_for_e2b_apart_serves_sandboxes_and_their_ports(apart: Apart) -> None:
    async with facade(apart, "e2b") as said, aiohttp.ClientSession() as http:
        found = re.search(r"E2B_API_URL=(\S+)", said)
        assert found is not None
        world = World(apart.mesh, found[1], http)
        key = await user_token(apart, "ada", "e2b")
        made = await world.create(key)
        write = await world.send(
            "POST", "/files?path=server.py", inside(made), data=_form("server.py", SERVER.read_text())
        )
        assert write[0] == 200, write
        status, refused = await world.send("GET", "/", inside(made, 8000))
        assert (status, refused["message"]) == (502, "The sandbox is running but port is not open")
        async with BaseSandboxAsync(
            f"sb_{made['sandboxID']}", base_url=apart.url, bearer_token=await user_token(apart, "ada-of-mesh")
        ) as box:
            await box.processes.start("python3 server.py", cwd="/home/user")

            async def listens() -> bool:
                return (await world.send("GET", "/", inside(made, 8000)))[0] != 502

            await until(listens, 20)
            body = "x" * 300_000
            status, echoed = await world.send("POST", "/echo?a=b", inside(made, 8000), data=body)
            assert (status, echoed["path"], echoed["body"]) == (200, "/echo?a=b", body)
            named = {name.lower() for name, _ in echoed["headers"]}
            assert named & {"sandmesh-port-token", "connection"} == set()
            async with http.get(f"{world.url}/redirect", headers=inside(made, 8000), allow_redirects=False) as moved:
                assert (moved.status, moved.headers["Location"]) == (302, "/echo")
            async with http.ws_connect(f"{world.url}/ws", headers=inside(made, 8000)) as socket:
                await socket.send_str("hello")
                assert (await socket.receive()).data == "hello"
        assert (await world.send("DELETE", f"/sandboxes/{made['sandboxID']}", {"X-API-KEY": key}))[0] == 204


async def test_the_door_for_e2b_apart_wants_a_token_of_an_administrator(apart: Apart) -> None:
    plain = replace(apart, token=await user_token(apart, "plain"))
    assert "SANDMESH_TOKEN" in await refused(plain, "e2b")
    assert "--domain" in await refused(apart, "swerex", "--domain", "mesh.localhost")


@pytest.mark.parametrize(
    ("name", "path", "headers", "body", "status"),
    [
        ("agentscope", "/list_session_keys", {"Authorization": "Bearer {}"}, {}, 200),
        ("swerex", "/execute", {"X-API-Key": "{}"}, {"command": ["echo", "hi"]}, 200),
        (
            "sandboxfusion",
            "/run_code",
            {"Authorization": "Bearer {}"},
            {"code": "print(6*7)", "language": "python"},
            200,
        ),
        ("jupyter", "/jupyter/api/kernels", {"Authorization": "token {}"}, {}, 201),
    ],
)
async def test_the_other_doors_apart_answer_tokens_of_the_mesh_alone(
    apart: Apart, name: str, path: str, headers: dict[str, str], body: dict[str, object], status: int
) -> None:
    token = await user_token(apart, f"user-of-{name}")
    async with facade(apart, name) as said, aiohttp.ClientSession() as http:
        found = re.search(r'="(http://[0-9.:]+)', said)
        assert found is not None, said
        for shown, expected in ((token, status), ("nonsense", 401)):
            own = {key: value.format(shown) for key, value in headers.items()}
            async with http.post(found[1] + path, json=body, headers=own) as response:
                assert response.status == expected, await response.text()


async def test_a_client_on_the_loop_of_uvloop_reaches_a_mesh_over_tcp(apart: Apart) -> None:
    token = await user_token(apart, "loop")

    async def work() -> str:
        async with BaseSandboxAsync(base_url=apart.url, bearer_token=token) as box:
            return (await box.run_shell_command("echo hi")).stdout

    assert await asyncio.to_thread(uvloop.run, work()) == "hi\n"


async def refused(apart: Apart, name: str, *options: str) -> str:
    """Return what a door says that does not start."""
    command = [sys.executable, "-m", "sandmeshd.cli.service", "facade", name, "--base-url", apart.url, *options]
    own = {"SANDMESH_TOKEN": apart.token, "SANDMESH_STATE_DIRECTORY": str(apart.state)}
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE, env={**os.environ, **own})
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode
    return said.decode()


def _form(name: str, text: str) -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field("file", text.encode(), filename=name)
    return form
