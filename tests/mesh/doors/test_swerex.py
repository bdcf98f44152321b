"""The door for SWE-ReX's clients: the package as it is published, and requests that it never sends."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import random
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from sandmesh.errors import InvalidArgument
from sandmesh.mesh import MeshAsync
from tests.environments import environment_of
from tests.mesh.conftest import run_mesh
from tests.mesh.doors.swerex_world import World, open_world

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "swerex"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh with this door and E2B's and AgentScope's for all tests."""
    async with open_world(e2b=True, agentscope=True) as running:
        yield running


async def test_a_mesh_without_the_settings_has_no_such_doors() -> None:
    async with run_mesh() as mesh, aiohttp.ClientSession() as http:
        assert mesh.doors == {}
        (url, *_) = await mesh.http.open()
        for path in ("/execute", "/swerex/x/execute", "/run_code"):
            assert (await http.post(url + path, json={})).status == 404


async def test_settings_that_contradict_the_doors_are_refused() -> None:
    for name in ("swerex", "sandboxfusion"):
        with pytest.raises(InvalidArgument, match=f"SANDMESH_{name.upper()}.*SANDMESH_WORKERS"):
            async with run_mesh(**{name: True, "workers": 2}):
                pass


async def test_the_unmodified_package_answers_as_its_own_local_runtime_does(world: World) -> None:
    python = await asyncio.to_thread(environment_of, "swe-rex==1.4.0", "aiohttp")
    environment = {**os.environ, "BASE_URL": world.url, "TOKEN": await world.token("package"), "TERM": "dumb"}
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(EXAMPLES / "runtime.py"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 200)
    assert (process.returncode, "replies are the same" in out.decode()) == (0, True), err.decode()[-3000:]


METHODS = ("create_session", "run_in_session", "close_session", "execute", "read_file", "write_file", "upload", "close")
BODIES: dict[str, dict[str, object]] = {
    "create_session": {},
    "run_in_session": {"action_type": "bash", "command": "true"},
    "close_session": {},
    "execute": {"command": "true", "shell": True},
    "read_file": {"path": "/tmp/mine"},
    "write_file": {"path": "/tmp/mine", "content": "secret"},
}


async def test_keys_that_are_missing_or_wrong_are_401_at_every_route(world: World) -> None:
    for token in (None, "nonsense", "smesh_" + "a" * 16 + "_" + "a" * 52):
        for method in METHODS:
            for place in ("", "/swerex/x", "/swerex/base/x"):
                status, found = await world.send("POST", f"{place}/{method}", token, json=BODIES.get(method, {}))
                assert (status, isinstance(found["detail"], str)) == (401, True), method
        assert (await world.send("GET", "/is_alive", token))[0] == 401
        assert (await world.send("GET", "/", token))[0] == 401
    # What a request with an id was answered is nobody else's, either.
    ada = await world.token("ada")
    assert (await world.post(ada, "x/execute", BODIES["execute"], "same-id"))[0] == 200
    assert (await world.post("nonsense", "x/execute", BODIES["execute"], "same-id"))[0] == 401


async def test_one_name_is_another_sandbox_for_another_user(world: World) -> None:
    ada, eve = await world.token("ada"), await world.token("eve")
    for user in (ada, eve):
        assert (await world.send("POST", "/swerex/both/execute", user, json=BODIES["execute"]))[0] == 200
    assert (await world.post(ada, "both/write_file", {"path": "/tmp/mine", "content": "ada's"}, "id"))[0] == 200
    assert (await world.post(ada, "both/create_session", {"session": "hers"}))[0] == 200
    status, found = await world.post(eve, "both/read_file", {"path": "/tmp/mine"}, "id")
    assert (status, found["swerexception"]["class_path"]) == (511, "builtins.FileNotFoundError")
    for method, body in (("run_in_session", BODIES["run_in_session"]), ("close_session", {})):
        status, found = await world.post(eve, f"both/{method}", {**body, "session": "hers"})
        assert found["swerexception"]["class_path"] == "swerex.exceptions.SessionDoesNotExistError", method
    form = aiohttp.FormData({"target_path": "/tmp/mine"})
    form.add_field("file", b"eve's", filename="f")
    assert (await world.send("POST", "/swerex/both/upload", eve, data=form))[0] == 200
    assert (await world.post(eve, "both/close"))[0] == 200
    assert await world.post(ada, "both/read_file", {"path": "/tmp/mine"}) == (200, {"content": "ada's"})
    assert (await world.post(ada, "both/run_in_session", {**BODIES["run_in_session"], "session": "hers"}))[0] == 200
    assert (await world.post(ada, "both/close"))[0] == 200


async def test_a_repeated_request_id_is_answered_from_memory(world: World) -> None:
    ada = await world.token("ada")
    body = {"command": "echo x >> /tmp/count; wc -l < /tmp/count", "shell": True}
    first, *again = [await world.post(ada, "ids/execute", body, "one") for _ in range(3)]
    assert first == (200, {"stdout": "1\n", "stderr": "", "exit_code": 0})
    assert again == [first, first]
    assert (await world.post(ada, "ids/execute", body, "two"))[1]["stdout"] == "2\n"
    # Also one that still runs, whose client lost its connection.
    slow = {"command": "sleep 0.5; echo x >> /tmp/count; wc -l < /tmp/count", "shell": True}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await world.post(ada, "ids/execute", slow, "three")
    assert (await world.post(ada, "ids/execute", slow, "three"))[1]["stdout"] == "3\n"
    failed = [await world.post(ada, "ids/execute", {"command": ["false"], "check": True}, "four") for _ in range(2)]
    assert (failed[0][0], failed[0]) == (511, failed[1])


async def test_a_closed_runtime_begins_anew_and_a_lost_one_says_so(world: World) -> None:
    ada = await world.token("ada")
    assert (await world.post(ada, "life/write_file", {"path": "/tmp/a", "content": "1"}))[0] == 200
    assert await world.post(ada, "life/close") == (200, {})
    assert (await world.post(ada, "life/read_file", {"path": "/tmp/a"}))[0] == 511
    async with MeshAsync(world.mesh.addresses[0]) as client:
        (info,) = [
            sandbox
            for sandbox in await client.sandboxes.list()
            if sandbox.in_use and sandbox.labels.get("swerex") == "life"
        ]
        await client.sandboxes.kill(info.sandbox_id)
    status, found = await world.post(ada, "life/execute", BODIES["execute"])
    assert (status, found["swerexception"]["class_path"]) == (511, "swerex.exceptions.SwerexException")
    for root in ("/", "/swerex/life/", "/swerex/base/life/"):
        assert await world.send("GET", root, ada) == (200, {"message": "hello world"})
    status, found = await world.send("GET", "/swerex/life/is_alive", ada)
    assert (status, found["is_alive"], bool(found["message"])) == (200, False, True)
    assert await world.post(ada, "life/close") == (200, {})
    assert (await world.post(ada, "life/execute", BODIES["execute"]))[0] == 200


async def test_sessions_end_with_the_program_that_has_them(world: World) -> None:
    ada = await world.token("ada")
    assert (await world.post(ada, "killed/create_session"))[0] == 200
    status, found = await world.post(ada, "killed/execute", {"command": "kill -9 $PPID", "shell": True})
    assert (status, found["swerexception"]["class_path"]) == (511, "swerex.exceptions.SwerexException")
    status, found = await world.post(ada, "killed/run_in_session", BODIES["run_in_session"])
    assert found["swerexception"]["class_path"] == "swerex.exceptions.SessionDoesNotExistError"


async def test_a_large_file_arrives_whole(world: World) -> None:
    ada, data = await world.token("ada"), os.urandom(9 << 20)
    form = aiohttp.FormData({"target_path": "/tmp/deep/big", "unzip": "false"})
    form.add_field("file", io.BytesIO(data), filename="big")
    assert await world.send("POST", "/swerex/large/upload", ada, data=form) == (200, {})
    status, found = await world.post(ada, "large/execute", {"command": ["sha256sum", "/tmp/deep/big"]})
    assert (status, found["stdout"].split()[0]) == (200, hashlib.sha256(data).hexdigest())
    status, found = await world.post(ada, "large/execute", {"command": "yes | head -c 40000000", "shell": True})
    assert (status, found["swerexception"]["class_path"]) == (511, "builtins.OSError")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("x/execute", {}, 422),
        ("x/execute", {"command": []}, 422),
        ("x/execute", {"command": "true", "timeout": -1}, 422),
        ("x/run_in_session", {"command": "true"}, 422),
        ("x/run_in_session", {"action_type": "bash", "command": "true", "check": "never"}, 422),
        ("x/create_session", {"session_type": "zsh"}, 422),
        ("nonsense/x/execute", {"command": "true"}, 404),
        ("~x/execute", {"command": "true"}, 404),
    ],
)
async def test_what_does_not_fit_is_refused_with_the_reason(
    world: World, path: str, body: dict[str, object], status: int
) -> None:
    found_status, found = await world.post(await world.token("ada"), path, body)
    assert (found_status, isinstance(found["detail"], str)) == (status, True), found


async def test_no_request_is_an_error_of_the_server(world: World) -> None:
    ada, chance = await world.token("ada"), random.Random(7)  # noqa: S311 - the same each time
    values = [None, True, -1, 1e308, "", "x", "\0", "\ud800", [], ["x"], {}, {"a": 1}, "bash", "bash_interrupt", "/tmp"]
    names = [
        "command",
        "session",
        "timeout",
        "check",
        "expect",
        "path",
        "content",
        "action_type",
        "env",
        "cwd",
        "shell",
    ]
    for number in range(250):
        method = chance.choice(METHODS[:-1])
        body: dict[str, object] = {name: chance.choice(values) for name in chance.sample(names, 4)}
        if number % 3:
            body = {**BODIES.get(method, {}), **dict(list(body.items())[:1]), "timeout": 0.5}
        data = json.dumps(body).encode() if number % 5 else chance.randbytes(40)
        status, _ = await world.send("POST", f"/swerex/fuzz/{method}", ada, data=data)
        assert status in (200, 400, 413, 422, 511), (method, body)
    assert (await world.post(ada, "fuzz/execute", BODIES["execute"]))[0] == 200
    assert (await world.http.get(world.url + "/healthz")).status == 200
