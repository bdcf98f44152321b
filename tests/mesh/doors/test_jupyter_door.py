"""The door for Jupyter's remote kernels: a Jupyter Server as it is published, and what it never sends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from sandmesh.mesh import MeshAsync
from sandmeshd.facades.jupyter.messages import LARGEST, V1
from sandmeshd.mesh import Mesh
from tests.environments import environment_of
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]
PROGRAM, PAGE = ROOT / "examples" / "jupyter" / "notebook.py", ROOT / "docs" / "jupyter.md"
PACKAGES = ("jupyter-server==2.21.1", "jupyter-client==8.10.0", "requests==2.34.2")


@dataclass(frozen=True)
class World:
    """A mesh with the door, the tokens of two users, and a client of HTTP."""

    mesh: Mesh
    url: str
    ada: str
    eve: str
    http: aiohttp.ClientSession

    async def send(self, method: str, path: str, token: str, **options: Any) -> tuple[int, Any]:
        """Send a request; return its status and its JSON."""
        headers = {"Authorization": f"token {token}"}
        async with self.http.request(method, f"{self.url}/api{path}", headers=headers, **options) as response:
            status, found = int(response.status), str(await response.text())
            return status, json.loads(found) if found else None

    async def kernel(self, token: str, **body: Any) -> str:
        """Start a kernel; return its id."""
        status, made = await self.send("POST", "/kernels", token, json=body)
        assert status == 201, made
        return str(made["id"])

    def channels(
        self, kernel: str, token: str, protocols: tuple[str, ...] = ()
    ) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]:
        """Open a kernel's channels."""
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.url}/api/kernels/{kernel}/channels"
        return self.http.ws_connect(url, headers=headers, protocols=protocols)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh with this door for all tests."""
    async with run_mesh(jupyter=True) as mesh, aiohttp.ClientSession() as http:
        async with MeshAsync(mesh.addresses[0]) as client:
            tokens = [(await client.tokens.create(name, user_id=name)).secret for name in ("ada", "eve")]
        ada, eve = tokens
        yield World(mesh, f"{mesh.doors['jupyter']}/jupyter", ada, eve, http)


def request_of(code: str, **more: Any) -> dict[str, Any]:
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "s", "username": "u"}
    return {
        "channel": "shell",
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": {"code": code, **more},
    }


async def content_of(socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
    """Return the content of the next message."""
    content: dict[str, Any] = json.loads((await socket.receive(60)).data)["content"]
    return content


async def printed(socket: aiohttp.ClientWebSocketResponse, code: str) -> str:
    """Run a cell; return what it wrote and raised."""
    await socket.send_json(request_of(code))
    text: str = ""
    while True:
        message = json.loads((await socket.receive(60)).data)
        content = message["content"]
        text += str(content.get("text", "")) + str(content["ename"] if message["msg_type"] == "error" else "")
        if content.get("execution_state") in {"idle", "dead"}:
            return text


async def test_an_unmodified_jupyter_server_runs_its_kernels_in_sandboxes(world: World) -> None:
    python = await asyncio.to_thread(environment_of, *PACKAGES, with_own=False)
    # The command of the page, at this mesh's address.
    shown = re.search(r"^jupyter server --gateway-url=(http://\S+?)/jupyter$", PAGE.read_text(), re.MULTILINE)
    assert shown is not None
    command = shown[0].replace(f"{shown[1]}/jupyter", world.url)
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(PROGRAM),
        env={
            **os.environ,
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "COMMAND": command,
            "JUPYTER_GATEWAY_AUTH_TOKEN": world.ada,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 200)
    assert (process.returncode, out.decode().splitlines()[-1:]) == (0, ["every cell ran"]), err.decode()[-3000:]
    assert (await world.send("GET", "/kernels", world.ada)) == (200, [])


async def test_kernels_are_their_owners_and_a_key_is_wanted_everywhere(world: World) -> None:
    kernel = await world.kernel(world.ada)
    one = f"/kernels/{kernel}"
    for method, path in (
        *(
            ("GET", ""),
            ("GET", "/kernelspecs"),
            ("GET", "/kernelspecs/bash"),
            ("GET", "/kernels"),
            ("POST", "/kernels"),
        ),
        *(("GET", one), ("DELETE", one), ("POST", f"{one}/interrupt"), ("POST", f"{one}/restart")),
        ("GET", f"{one}/channels"),
    ):
        for token in ("", "nonsense"):
            assert (await world.send(method, path, token, json={}))[0] == 401
        if one in path:
            assert (await world.send(method, path, world.eve))[0] == 404
    assert (await world.send("GET", "/kernels", world.eve)) == (200, [])
    assert (await world.send("GET", one, world.ada))[1]["execution_state"] == "idle"
    assert (await world.send("GET", f"{one}/channels", world.ada))[0] == 400
    assert (await world.send("DELETE", one, world.ada))[0] == 204
    assert (await world.send("GET", one, world.ada))[0] == 404


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"name": "julia"}, 404, "there are python3, javascript, typescript, bash"),
        ({"name": 7}, 400, "name is a text"),
        ({"env": {"A": 1}}, 400, "object of texts"),
        ({"env": {"A": "x" * 70_000}}, 400, "65536"),
        ({"env": {"KERNEL_SANDMESH_SESSION": "a/b"}}, 400, "not a name"),
        ({"env": {"KERNEL_SANDMESH_SESSION": "a", "B": "1"}}, 400, "B: the sandbox of a session"),
        ({"env": {"KERNEL_SANDMESH_TEMPLATE": "absent"}}, 404, "absent"),
    ],
)
async def test_a_kernel_that_cannot_be_made_is_refused_with_the_reason(
    world: World, body: dict[str, Any], status: int, text: str
) -> None:
    found, answer = await world.send("POST", "/kernels", world.eve, json=body)
    assert (found, text in str(answer)) == (status, True), answer
    assert (await world.send("GET", "/kernels", world.eve)) == (200, [])


async def test_kernels_of_one_session_share_files_and_a_dead_one_restarts_in_a_new_sandbox(world: World) -> None:
    session = {"KERNEL_SANDMESH_SESSION": "shared", "KERNEL_WORKING_DIR": "/home/ada"}
    one, two = [await world.kernel(world.ada, name=name, env=session) for name in ("python3", "bash")]
    apart = await world.kernel(world.ada, env={"COLOUR": "green"})
    async with world.channels(one, world.ada) as first, world.channels(two, world.ada) as second:
        assert await printed(first, "open('left', 'w').write('here')\nprint(1)") == "1\n"
        assert await printed(second, "cat left") == "here"
    async with world.channels(apart, world.ada) as socket:
        shown = await printed(socket, "import os\nprint(os.path.exists('left'), os.environ['COLOUR'])")
        assert shown == "False green\n"
        async with MeshAsync(world.mesh.addresses[0]) as client:
            (box,) = [box for box in await client.sandboxes.list() if box.labels.get("jupyter") == apart]
            await client.sandboxes.kill(box.sandbox_id)
        # A sandbox that is being ended may still run a cell.
        async with asyncio.timeout(60):
            while (await world.send("GET", f"/kernels/{apart}", world.ada))[1]["execution_state"] != "dead":
                await printed(socket, "1")
        assert (await world.send("POST", f"/kernels/{apart}/restart", world.ada))[0] == 200
    async with world.channels(apart, world.ada) as socket:
        assert await printed(socket, "print('again')") == "again\n"
    for kernel in (one, two, apart):
        assert (await world.send("DELETE", f"/kernels/{kernel}", world.ada))[0] == 204


async def test_a_cell_ends_when_the_token_that_started_its_kernel_is_revoked(world: World) -> None:
    async with MeshAsync(world.mesh.addresses[0]) as client:
        made = await client.tokens.create("short", user_id="short")
        kernel = await world.kernel(made.secret)
        async with world.channels(kernel, made.secret) as socket:
            await socket.send_json(request_of("import time\nprint('up', flush=True)\ntime.sleep(300)"))
            while (found := await content_of(socket)).get("status") is None:
                if found.get("text") == "up\n":
                    await client.tokens.revoke(made.token)
            assert (found["status"], "was revoked" in found["evalue"]) == ("error", True), found
    assert (await world.send("GET", "/kernels", made.secret))[0] == 401


async def test_frames_that_are_not_messages_close_their_connection_only(world: World) -> None:
    kernel = await world.kernel(world.ada)
    many = json.dumps(request_of("x" * 1_000_000))
    async with world.channels(kernel, world.ada) as good:
        for frame in ("nonsense", "[" * 5_000, "{}", b"\xff" * 40, "x" * (LARGEST + 1)):
            async with world.channels(kernel, world.ada, protocols=(V1,) * isinstance(frame, bytes)) as bad:
                # One that is too large is not read to its end.
                with suppress(ConnectionError):
                    await (bad.send_bytes(frame) if isinstance(frame, bytes) else bad.send_str(frame))
                ended = {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
                assert (await bad.receive(60)).type in ended
                assert bad.close_code in {1006, 1007, 1009}
        # What waits is bounded: beyond it a request is answered with the reason.
        await good.send_json(request_of("input()"))
        for _ in range(10):
            await good.send_str(many)
        while True:
            content = await content_of(good)
            if "too many requests wait" in content.get("evalue", ""):
                break
        assert (await world.send("POST", f"/kernels/{kernel}/interrupt", world.ada))[0] == 204
    assert (await world.send("DELETE", f"/kernels/{kernel}", world.ada))[0] == 204
