"""The door for SandboxFusion's clients: the package as it is published, and requests that it never sends."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from sandmesh.mesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.environments import environment_of
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "sandboxfusion"
SHOWN = {"python", "bash", "nodejs", "typescript", "cpp", "perl"}


@dataclass(frozen=True)
class World:
    """A mesh, a user's token, and a client of HTTP."""

    mesh: Mesh
    url: str
    token: str
    http: aiohttp.ClientSession

    async def send(self, method: str, path: str, token: str | None, **options: Any) -> tuple[int, Any]:
        """Send a request; return its status and its JSON."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.http.request(method, self.url + path, headers=headers, **options) as response:
            return response.status, await response.json()

    async def run(self, path: str = "/run_code", **body: Any) -> tuple[int, Any]:
        """Run code."""
        return await self.send("POST", path, self.token, json=body)

    async def left(self) -> int:
        """Return how many sandboxes of this door are in use."""
        async with MeshAsync(self.mesh.addresses[0]) as client:
            return sum(
                sandbox.in_use and "sandboxfusion" in sandbox.labels for sandbox in await client.sandboxes.list()
            )


@asynccontextmanager
async def _open_world() -> AsyncGenerator[World]:
    async with run_mesh(sandboxfusion=True, swerex=True, e2b=True, agentscope=True) as mesh:
        async with MeshAsync(mesh.addresses[0]) as client:
            token = (await client.tokens.create("ada")).secret
        async with aiohttp.ClientSession() as http:
            yield World(mesh, mesh.doors["sandboxfusion"], token, http)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh with all doors for all tests."""
    async with _open_world() as running:
        yield running


async def test_the_unmodified_package_needs_an_endpoint_alone(world: World) -> None:
    status, found = await world.send("GET", "/v1/languages", world.token)
    assert (status, found["languages"]["python"], found["languages"]["bash"]) == (200, True, True)
    shown = sorted(name for name, there in found["languages"].items() if there and name in SHOWN)
    python = await asyncio.to_thread(environment_of, "sandbox-fusion==0.3.7")
    endpoint = world.url.replace("://", f"://x:{world.token}@")
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(EXAMPLES / "run.py"),
        env={**os.environ, "ENDPOINT": endpoint, "LANGUAGES": " ".join(shown)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 200)
    assert (process.returncode, out.decode().splitlines()[-1:]) == (0, ["every call answered"]), err.decode()[-3000:]
    assert await world.left() == 0


async def test_requests_without_a_valid_token_are_401_at_every_route(world: World) -> None:
    for token in (None, "nonsense", "smesh_" + "a" * 16 + "_" + "a" * 52):
        for method, path in (("POST", "/run_code"), ("POST", "/run_jupyter"), ("GET", "/v1/languages")):
            assert (await world.send(method, path, token, json={}))[0] == 401
        assert (await world.send("POST", "/submit", token, json={}))[0] == 401


async def test_no_request_finds_what_another_left(world: World) -> None:
    code = "import os, pathlib\nprint(os.path.exists('/tmp/left'))\npathlib.Path('/tmp/left').touch()"
    for _ in range(2):
        status, found = await world.run(language="python", code=code)
        assert (status, found["run_result"]["stdout"]) == (200, "False\n")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/run_code", {}, 422),
        ("/run_code", {"code": "1", "language": "nonsense"}, 422),
        ("/run_code", {"code": "1", "language": "verilog"}, 501),
        ("/run_code", {"code": "1", "language": "python", "run_timeout": -1}, 422),
        ("/run_code", {"code": "1", "language": "python", "files": {"a": "not base64"}}, 422),
        ("/run_jupyter", {"cells": ["1"], "kernel": "ir"}, 422),
        ("/get_prompts", {"dataset": "x"}, 501),
    ],
)
async def test_what_does_not_fit_is_refused_with_the_reason(
    world: World, path: str, body: dict[str, Any], status: int
) -> None:
    found_status, found = await world.run(path, **body)
    assert (found_status, isinstance(found["detail"], str)) == (status, True), found


async def test_memory_is_limited_for_each_process(world: World) -> None:
    for megabytes, code in ((64, 1), (0, 0)):
        status, found = await world.run(language="python", code="x = bytearray(200 << 20)", memory_limit_MB=megabytes)
        assert (status, found["run_result"]["return_code"]) == (200, code), found


async def test_no_request_is_an_error_of_the_server(world: World) -> None:
    chance = random.Random(7)  # noqa: S311 - the same each time
    values = [None, True, -1, 1e308, "", "x", "\0", "\ud800", [], ["x"], {}, {"a": 1}, {"a": "eA=="}, "python"]
    names = ["code", "language", "stdin", "run_timeout", "files", "fetch_files", "cells", "total_timeout"]
    for number in range(120):
        body: dict[str, object] = {name: chance.choice(values) for name in chance.sample(names, 4)}
        if number % 4 == 0:
            name = chance.choice(names[:6])
            body = {"code": "1", "language": "python", "run_timeout": 5, name: chance.choice(values)}
        data = json.dumps(body).encode() if number % 7 else chance.randbytes(40)
        path = chance.choice(["/run_code", "/run_code", "/run_jupyter"])
        status, found = await world.send("POST", path, world.token, data=data)
        assert status in (200, 400, 404, 413, 422, 501, 503), (path, body, found)
    assert (await world.run(language="python", code="print(1)"))[0] == 200
    assert await world.left() == 0


async def test_clients_of_both_doors_that_are_broken_or_slow_hold_nobody_else_up(world: World) -> None:
    place, token = urlsplit(world.url), world.token
    bearer, key = f"Authorization: Bearer {token}", f"X-API-Key: {token}"
    unfinished = [
        f"POST /run_code HTTP/1.1\r\nHost: x\r\n{bearer}\r\nContent-Length: 1000\r\n\r\n{{".encode(),
        f"POST /run_jupyter HTTP/1.1\r\nHost: x\r\n{bearer}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe".encode(),
        f"POST /swerex/slow/execute HTTP/1.1\r\nHost: x\r\n{key}\r\nContent-Length: 1000\r\n\r\n".encode(),
        f"POST /swerex/slow/upload HTTP/1.1\r\nHost: x\r\n{key}\r\nContent-Type: multipart/form-data".encode(),
        b"\x16\x03\x01",
        b"nonsense\r\n\r\n",
    ]
    writers: list[asyncio.StreamWriter] = []
    for number in range(90):
        _, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(unfinished[number % len(unfinished)])
        writers.append(writer)
    execute = {"command": ["echo", "hi"]}
    for _ in range(10):
        assert (await world.send("GET", "/v1/languages", token))[0] == 200
        async with world.http.post(
            f"{world.url}/swerex/quick/execute", json=execute, headers={"X-API-Key": token}
        ) as ran:
            assert (ran.status, (await ran.json())["stdout"]) == (200, "hi\n")
    for writer in writers:
        writer.close()
    assert await world.left() == 0


async def test_bodies_without_an_end_and_uploads_that_break_off_are_refused(world: World) -> None:
    large, key = io.BytesIO(b" " * (65 << 20)), {"X-API-Key": world.token}
    assert (await world.send("POST", "/run_code", world.token, data=large))[0] == 413
    large.seek(0)
    async with world.http.post(f"{world.url}/swerex/half/execute", data=large, headers=key) as answer:
        assert answer.status == 413

    async def broken() -> AsyncGenerator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' + b"x" * (1 << 20)
        raise ConnectionResetError

    multipart = key | {"Content-Type": "multipart/form-data; boundary=x"}
    with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
        await world.http.post(f"{world.url}/swerex/half/upload", data=broken(), headers=multipart)
    found = {"command": "find /tmp /workspace -size +100k", "shell": True}
    async with world.http.post(f"{world.url}/swerex/half/execute", json=found, headers=key) as answer:
        assert (answer.status, (await answer.json())["stdout"]) == (200, "")
