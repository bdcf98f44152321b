"""The door for E2B's clients against those who want what is another's, and against clients that are broken or slow."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import string
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from sandmesh.mesh import MeshAsync
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.builds.builder import Builder
from sandmeshd.facades.e2b.builds.catalog import Catalog
from sandmeshd.facades.e2b.control.meter import SandboxMeter
from sandmeshd.facades.e2b.control.parts import ControlParts
from sandmeshd.facades.e2b.control.routes import add_routes
from sandmeshd.facades.e2b.control.views import Views
from sandmeshd.facades.e2b.envd.service import STREAMS, UNARY
from sandmeshd.facades.e2b.events.routes import EventRoutes
from sandmeshd.facades.e2b.events.sender import WebhookSender
from sandmeshd.facades.e2b.guests import Guests
from sandmeshd.facades.e2b.identities import TokenMaker
from sandmeshd.facades.e2b.pauses import Pauser
from sandmeshd.facades.e2b.volumes.shelf import Shelf
from tests.mesh.doors.e2b.e2b_world import HEAD, World, envelope, inside, open_world, request_about_ada
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

STREAM = {"Content-Type": "application/connect+json"}
JSON, MEBIBYTE = {"Content-Type": "application/json"}, 1 << 20


@dataclass(frozen=True)
class Tenants:
    """Ada, what is hers, and eve, who has a sandbox, too."""

    ada: str
    eve: str
    made: dict[str, Any]
    evil: dict[str, Any]
    template_id: str
    build_id: str
    snapshot_id: str

    @property
    def secrets(self) -> list[str]:
        """What nobody else may see."""
        return [self.made["sandboxID"], self.template_id, self.build_id, self.snapshot_id, "of-ada"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh with all doors for all tests."""
    async with open_world(agentscope=True, swerex=True, sandboxfusion=True) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenants(world: World) -> Tenants:
    """Make what ada has."""
    ada, eve = await world.key("ada"), await world.key("eve")
    key = {"X-API-KEY": ada}
    made, evil = await world.create(ada, metadata={"a": "of-ada"}, timeout=900), await world.create(eve, timeout=900)
    place = f"/sandboxes/{made['sandboxID']}"
    snapshot = (await world.send("POST", f"{place}/snapshots", key, json={"name": "of-ada"}))[1]
    listed = (await world.send("GET", "/templates", key))[1]
    (template,) = [template for template in listed if "of-ada" in template["aliases"]]
    ids = template["templateID"], template["buildID"], snapshot["snapshotID"]
    return Tenants(ada, eve, made, evil, *ids)


def all_routes(folder: Path) -> list[tuple[str, str]]:
    """Return the method and path of each route of the control plane, from the door itself."""
    application, clients = web.Application(), MeshClients(MeshAddress("unix:///nowhere"))
    catalog, guests = Catalog(folder / "names.json"), Guests(clients)
    builder = Builder(clients, catalog, folder / "uploads")
    events = EventRoutes(clients, WebhookSender(clients, folder / "webhooks"), inward=False)
    parts = ControlParts(clients, catalog, builder, Shelf(clients), SandboxMeter(clients), events, "secret")
    add_routes(application, parts, guests, Pauser(guests), Views(TokenMaker("x"), lambda: None))
    found: set[tuple[str, str]] = set()
    for route in application.router.routes():
        assert route.resource is not None
        methods = ("GET", "POST") if route.method == "*" else (route.method,)
        found |= {(method, route.resource.canonical) for method in methods if route.method != "HEAD"}
    return sorted(found)


def filled(path: str, tenants: Tenants) -> str:
    """Return a route's path with the ids of what is ada's."""
    own = tenants.made["sandboxID"] if "sandboxes" in path else tenants.template_id
    own = "of-ada" if path.startswith("/volume") else own
    values = {"{what}": "file", "{id}": own, "{hash}": "a" * 64, "{build}": tenants.build_id, "{rest}": "/x"}
    for name, value in values.items():
        path = path.replace(name, value)
    return path


async def test_no_route_shows_or_changes_what_is_another_users(world: World, tenants: Tenants, tmp_path: Path) -> None:
    routes = all_routes(tmp_path)
    assert len(routes) > 40
    for method, path in routes:
        named = filled(path, tenants)
        unknown = {401, 403, 501}
        for key, refused in ((tenants.eve, {403, 404, 501}), ("e2b_" + "0" * 40, unknown), (None, unknown)):
            headers = {"X-API-KEY": key} if key else {}
            parameter = {"/sandboxes/metrics": "sandbox_ids", "/snapshots": "sandboxID"}.get(path)
            query = f"?{parameter}={tenants.made['sandboxID']}" if parameter else ""
            body = request_about_ada(method, path) if method != "GET" else None
            status, found = await world.send(method, named + query, headers, json=body)
            # A key is nothing to contents of volumes, which want a volume's token.
            allowed_statuses = {401} if path.startswith("/volumecontent/") else refused
            open_to_eve = key == tenants.eve and named == path
            assert status in allowed_statuses or (open_to_eve and status < 300), (method, path, status, found)
            if status < 300:
                shown = json.dumps(found)
                assert not [secret for secret in tenants.secrets[:-1] if secret in shown], (method, path)
    own = {"X-API-KEY": tenants.ada}
    status, found = await world.send("GET", f"/sandboxes/{tenants.made['sandboxID']}", own)
    assert (status, found["state"], found["metadata"]) == (200, "running", {"a": "of-ada"})
    assert [one["tag"] for one in (await world.send("GET", "/templates/of-ada/tags", own))[1]] == ["default"]


async def test_no_request_reaches_into_another_users_sandbox(world: World, tenants: Tenants) -> None:
    paths = [("POST", path) for path in [*UNARY, *STREAMS, "/process.Process/StreamInput"]]
    paths += [("GET", "/files?path=x"), ("POST", "/files?path=x"), ("PUT", "/files?path=x"), ("GET", "/metrics")]
    for shown in (None, tenants.evil["envdAccessToken"], "x", tenants.ada):
        headers = inside(tenants.made)
        del headers["X-Access-Token"]
        headers |= {"X-Access-Token": shown} if shown else {}
        for method, path in paths:
            assert (await world.send(method, path, headers | JSON, data=b"{}"))[0] == 401, (path, shown)
        headers["E2b-Sandbox-Port"] = "49999"
        assert (await world.send("POST", "/execute", headers, json={"code": "1"}))[0] == 401
    signed = f"/files?path=x&signature=v1_{'a' * 43}"
    assert (await world.send("GET", signed, {"E2b-Sandbox-Id": tenants.made["sandboxID"]}))[0] == 401
    async with MeshAsync(world.mesh.addresses[0]) as client:

        async def is_recorded() -> bool:
            status, _ = await world.send("GET", signed)  # of many in one second the audit has the first only
            found = {entry.sandbox_ids for entry in await client.audit.list(method="Door.Access", limit=1000)}
            return status == 401 and found == {(f"sb_{tenants.made['sandboxID']}",), ()}

        await until(is_recorded)


async def all_doors_answer(world: World) -> None:
    """Check that nothing else was harmed."""
    token = {"Authorization": f"Bearer {await world.key(f'witness {os.urandom(4).hex()}')}"}
    for path, headers in (("/healthz", {}), ("/health", {}), ("/v1/languages", token), ("/v2/sandboxes", {})):
        status, _ = await world.send("GET", path, headers)
        assert status == (401 if path == "/v2/sandboxes" else 200), path
    async with MeshAsync(world.mesh.addresses[0]) as client:
        await client.capacity()


VALUES: list[object] = [
    *[None, True, -1, 0, 1, 1e308, "", "x", "\0", "\ud800", "../x", "/home/user", [], ["x"], {}, {"a": 1}],
    *[
        {"selector": {"pid": 1}},
        {"pid": 2**40},
        {"tag": "x"},
        {"stdin": "!"},
        {"stdin": "eA=="},
        "base:latest",
        "python",
    ],
]
CONTROL: list[str] = [
    "timeout",
    "templateID",
    "metadata",
    "envVars",
    "network",
    "autoPause",
    "autoResume",
    "lifecycle",
    "name",
    "tags",
    "steps",
    "fromImage",
    "count",
    "target",
    "mcp",
    "volumeMounts",
    "memory",
    "duration",
    "cpuCount",
]
QUERIES: list[str] = ["limit", "nextToken", "state", "metadata", "start", "order", "logsOffset", "end", "sandboxID"]
INNER: list[str] = [
    "process",
    "path",
    "source",
    "destination",
    "depth",
    "input",
    "signal",
    "pty",
    "tag",
    "stdin",
    "watcherId",
    "cmd",
    "args",
    "envs",
    "cwd",
    "recursive",
    "selector",
    "start",
    "data",
    "code",
    "language",
    "context_id",
]


def body_of(chance: random.Random, names: list[str]) -> bytes:
    """Return a body that is no request, or hardly one."""
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(60))
    found: dict[str, object] = {name: chance.choice(VALUES) for name in chance.sample(names, 4)}
    if chance.random() < 0.5:
        found["process"] = {name: chance.choice(VALUES) for name in ("cmd", "args", "envs", "cwd", "pid")}
    return json.dumps(found).encode()


def allowed(status: int, found: object) -> bool:
    """Return whether a status is no error of the server: 502 is what clients expect of a sandbox that is gone."""
    gone = status == 502 and isinstance(found, dict) and "message" in found
    return status < 500 or status in (501, 503) or gone


async def test_no_request_to_the_control_plane_is_an_error_of_the_server(
    world: World, tenants: Tenants, tmp_path: Path
) -> None:
    chance = random.Random(11)  # noqa: S311 - the same each time
    routes = [route for route in all_routes(tmp_path) if route[0] != "DELETE"]
    key = {"X-API-KEY": await world.key("fuzzer")}
    own = (await world.create(key["X-API-KEY"]))["sandboxID"]
    for number in range(300):
        method, path = chance.choice(routes)
        names = [own, own, "x", "%00", "%ff", "..", "a" * 300, quote("\U0001f600")]
        for part in ("{id}", "{hash}", "{build}", "{rest}"):
            path = path.replace(part, chance.choice(names))
        texts = (quote("".join(chance.choices(string.printable, k=4))) for _ in range(number % 3))
        query = "&".join(f"{chance.choice(QUERIES)}={text}" for text in texts)
        data = None if method == "GET" else body_of(chance, CONTROL)
        status, found = await world.send(method, f"{path}?{query}", key, data=data)
        assert allowed(status, found), (method, path, query, data, status, found)
    await all_doors_answer(world)
    async with MeshAsync(world.mesh.addresses[0]) as client:
        for one in await client.sandboxes.list():
            if one.in_use and one.user_id == "fuzzer":
                await client.sandboxes.kill(one.sandbox_id)


async def test_no_request_to_a_sandbox_is_an_error_of_the_server(world: World, tenants: Tenants) -> None:
    chance = random.Random(13)  # noqa: S311 - the same each time
    made = await world.create(tenants.ada, timeout=900)
    inner = [*UNARY, *STREAMS, "/process.Process/StreamInput", "/files", "/metrics"]
    for _ in range(300):
        path, data = chance.choice(inner), body_of(chance, INNER)
        headers = inside(made) | chance.choice(
            [JSON, STREAM, {"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}]
        )
        headers["Connect-Timeout-Ms"] = chance.choice(["300", "300", "x", "0" * 11])
        if headers.get("Content-Type") == STREAM["Content-Type"]:
            data = HEAD.pack(chance.choice([0, 0, 0, 1, 2, 255]), len(data) + chance.choice([0, 0, 0, 3, 2**31])) + data
        status, found = await world.send("POST", path, headers, data=data)
        assert allowed(status, found), (path, data, status, found)
    headers = inside(made, 49_999)
    for _ in range(60):
        path = chance.choice(["/execute", "/contexts", "/contexts/x/restart", "/contexts/default"])
        status, found = await world.send("POST", path, headers, data=body_of(chance, INNER))
        assert allowed(status, found), (path, status, found)
    for port in ("0", "65536", "-1", "x", "49983\t", "9" * 30):
        status, found = await world.send("GET", "/", inside(made) | {"E2b-Sandbox-Port": port.strip()})
        assert allowed(status, found), port
    assert (await world.send("POST", "/process.Process/List", inside(made), json={}))[0] == 200
    await all_doors_answer(world)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_argument"),
        (b"\0\0", "invalid_argument"),
        (HEAD.pack(0, 10) + b"{}", "invalid_argument"),
        (HEAD.pack(0, 2) + b"{x", "invalid_argument"),
        (HEAD.pack(0, 2) + b"[]", "invalid_argument"),
        (HEAD.pack(1, 2) + b"{}", "invalid_argument"),
        (HEAD.pack(2, 2) + b"{}", "invalid_argument"),
        (HEAD.pack(0, 2**32 - 1) + b"{}", "resource_exhausted"),
    ],
)
async def test_malformed_envelopes_are_refused_with_their_code(
    world: World, tenants: Tenants, data: bytes, code: str
) -> None:
    for path in STREAMS:
        status, found = await world.send("POST", path, inside(tenants.made) | STREAM, data=data)
        assert (400 <= status < 500, found["code"]) == (True, code), (path, found)


async def test_messages_that_are_too_large_are_refused(world: World, tenants: Tenants) -> None:
    headers, data = inside(tenants.made) | JSON, b" " * (65 * MEBIBYTE)
    status, found = await world.send("POST", "/process.Process/List", headers, data=io.BytesIO(data))
    assert (status, found["code"]) == (413, "resource_exhausted")
    status, found = await world.send("POST", "/v2/sandboxes", {"X-API-KEY": tenants.ada}, data=io.BytesIO(data))
    assert status == 413, found
    await all_doors_answer(world)


@asynccontextmanager
async def connected(world: World, data: bytes) -> AsyncGenerator[asyncio.StreamWriter]:
    """Open a connection, send what is to be sent, and read nothing."""
    place = urlsplit(world.url)
    _, writer = await asyncio.open_connection(place.hostname, place.port, limit=1)
    with closing(writer):
        writer.write(data)
        await writer.drain()
        yield writer


def head_of(method: str, path: str, headers: dict[str, str]) -> bytes:
    """Return the head of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def resident() -> int:
    """Return how much memory this process and its mesh have."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_client_that_never_reads_slows_its_own_stream_alone(world: World, tenants: Tenants) -> None:
    made, before = await world.create(tenants.ada), resident()
    message = envelope({"process": {"cmd": "/bin/bash", "args": ["-c", "echo $$; exec yes"]}})
    start = head_of("POST", "/process.Process/Start", inside(made) | STREAM | {"Content-Length": str(len(message))})
    filling = {"process": {"cmd": "/bin/bash", "args": ["-c", "head -c 300000000 /dev/zero > big"]}}
    status, _ = await world.send("POST", "/process.Process/Start", inside(made) | STREAM, data=envelope(filling))
    assert status == 200
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(connected(world, start + message))
        await stack.enter_async_context(connected(world, head_of("GET", "/files?path=big", inside(made))))

        async def listed() -> bool:
            return bool((await world.send("POST", "/process.Process/List", inside(made), json={}))[1]["processes"])

        await until(listed)
        for _ in range(100):
            assert (await world.send("POST", "/process.Process/List", inside(made), json={}))[0] == 200
        await all_doors_answer(world)
        assert resident() - before < 100 * MEBIBYTE
    (process,) = (await world.send("POST", "/process.Process/List", inside(made), json={}))[1]["processes"]
    body = {"process": {"pid": process["pid"]}, "signal": "SIGNAL_SIGKILL"}
    assert (await world.send("POST", "/process.Process/SendSignal", inside(made), json=body))[0] == 200


async def test_clients_that_never_finish_their_requests_hold_nobody_else_up(world: World, tenants: Tenants) -> None:
    unfinished = [
        b"GET /v2/sandboxes HTTP/1.1\r\nHost: loc",
        head_of("POST", "/v2/sandboxes", {"X-API-KEY": tenants.ada, "Content-Length": "1000"}) + b'{"timeout',
        head_of("POST", "/files?path=half", inside(tenants.made) | {"Transfer-Encoding": "chunked"}) + b"5\r\nhel",
        head_of("POST", "/process.Process/Start", inside(tenants.made) | STREAM | {"Content-Length": "99"}) + b"\0\0\0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
    ]
    async with AsyncExitStack() as stack:
        for number in range(120):
            await stack.enter_async_context(connected(world, unfinished[number % len(unfinished)]))
        for _ in range(20):
            assert (await world.send("GET", "/health", inside(tenants.made)))[0] == 204
        await all_doors_answer(world)
    assert (await world.send("GET", "/files?path=half", inside(tenants.made)))[0] == 404


async def test_an_upload_that_breaks_off_writes_nothing(world: World, tenants: Tenants) -> None:
    async def broken() -> AsyncGenerator[bytes]:
        yield b"x" * MEBIBYTE
        raise ConnectionResetError

    headers = inside(tenants.made) | {"Content-Type": "application/octet-stream"}
    with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
        await world.http.post(f"{world.url}/files?path=broken", headers=headers, data=broken())
    assert (await world.send("GET", "/files?path=broken", headers))[0] == 404
