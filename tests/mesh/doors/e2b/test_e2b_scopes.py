"""What keys that only look, and strangers, get from the door for E2B's clients."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync
from sandmesh.errors import PermissionDenied
from sandmesh.mesh import MeshAsync
from sandmeshd.auth.doors import as_door, door_proof

from .e2b_world import World, inside, open_world

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

SECRET = "a-secret-of-a-mesh-that-tests-know-0123456789"  # noqa: S105 - of no mesh but the test's
POISONS = {
    "a count of all memory": {"e2b": "99999999999"},
    "a superscript": {"e2b": "²"},
    "pieces that nest deeply": {"e2b": "2", "e2b.0": "[" * 250, "e2b.1": "[" * 250},
    "fields of other types": {"e2b": "1", "e2b.0": '{"template": 1, "auto_pause": "yes", "metadata": []}'},
}
CHANGES = [
    ("POST", "/sandboxes"),
    ("POST", "/v2/sandboxes"),
    ("DELETE", "/sandboxes/{id}"),
    ("POST", "/sandboxes/{id}/connect"),
    ("POST", "/v2/sandboxes/{id}/connect"),
    ("POST", "/sandboxes/{id}/resume"),
    ("POST", "/sandboxes/{id}/timeout"),
    ("POST", "/sandboxes/{id}/refreshes"),
    ("POST", "/sandboxes/{id}/pause"),
    ("PUT", "/sandboxes/{id}/network"),
    ("POST", "/sandboxes/{id}/snapshots"),
    ("POST", "/sandboxes/{id}/fork"),
    ("POST", "/v3/templates"),
    ("POST", "/v2/templates/{id}/builds/{id}"),
    ("POST", "/templates/tags"),
    ("DELETE", "/templates/tags"),
    ("DELETE", "/templates/{id}"),
    ("POST", "/volumes"),
    ("DELETE", "/volumes/{id}"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with open_world(mesh_secret=SECRET) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(world: World) -> str:
    """Return the key of a user."""
    return await world.key("ada")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(world: World, ada: str) -> dict[str, Any]:
    """Return the user's sandbox, with a port that needs a token."""
    return await world.create(ada, timeout=900, secure=True, network={"allowPublicTraffic": False})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def looking(world: World) -> str:
    """Return a key of the user's that only looks."""
    async with MeshAsync(world.mesh.addresses[0]) as mesh:
        return (await mesh.tokens.create("dashboard", scope="read-only", user_id="ada", form="e2b")).secret


async def test_a_key_that_only_looks_is_shown_a_sandbox_without_its_tokens(
    world: World, made: dict[str, Any], ada: str, looking: str
) -> None:
    path = f"/sandboxes/{made['sandboxID']}"
    status, own = await world.send("GET", path, {"X-API-KEY": ada})
    assert (status, own["envdAccessToken"]) == (200, made["envdAccessToken"])
    assert own["trafficAccessToken"] == made["trafficAccessToken"]
    status, seen = await world.send("GET", path, {"X-API-KEY": looking})
    assert (status, seen["sandboxID"]) == (200, made["sandboxID"])
    text = json.dumps(seen)
    assert made["envdAccessToken"] not in text
    assert made["trafficAccessToken"] not in text


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_key_that_only_looks_changes_nothing(
    world: World, made: dict[str, Any], looking: str, method: str, path: str
) -> None:
    body = {"timeout": 1, "name": "mine", "tags": ["a"], "target": "mine", "templateID": "base"}
    place = path.replace("{id}", made["sandboxID"])
    status, answer = await world.send(method, place, {"X-API-KEY": looking}, json=body)
    assert status == 403, answer
    assert "read-only" in answer["message"]


@pytest.mark.parametrize("poison", POISONS)
async def test_labels_of_any_form_stop_nobody(world: World, made: dict[str, Any], ada: str, poison: str) -> None:
    # As any user could set them before they were reserved.
    door = as_door("", door_proof(SECRET))
    labels = POISONS[poison]
    async with BaseSandboxAsync(base_url=world.mesh.addresses[0], bearer_token=door, labels=labels) as box:
        assert "2" in (await box.run_ipython_cell("1+1")).text
        async with asyncio.timeout(20):
            status, _ = await world.send("GET", "/files?path=/x&signature=z")
            assert status == 401
            status, _ = await world.send("GET", f"/files?path=/x&signature=v1_{'a' * 43}")
            assert status == 401
            status, _ = await world.send("GET", "/v2/sandboxes", {"X-API-KEY": ada})
            assert status == 200
            status, _ = await world.send("GET", "/health", inside(made))
            assert status == 204


async def test_a_body_is_not_read_before_its_key_is_known(world: World) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        yield b'{"templateID": "base", "metadata": {"a": "'
        await asyncio.Event().wait()

    async with asyncio.timeout(20):
        for path in ("/v2/sandboxes", "/v3/templates", "/volumes", "/templates/tags"):
            status, _ = await world.send("POST", path, {"X-API-KEY": "e2b_" + "0" * 40}, data=endless())
            assert status == 401


async def test_a_body_of_the_control_plane_is_bounded(world: World, ada: str) -> None:
    body = b'{"templateID": "base", "metadata": {"a": "' + b"x" * (5 << 20) + b'"}}'
    status, answer = await world.send("POST", "/v2/sandboxes", {"X-API-KEY": ada}, data=io.BytesIO(body))
    assert status == 413, answer


async def test_urls_of_ports_are_not_listed_for_who_only_looks(world: World) -> None:
    address = world.mesh.addresses[0]
    async with MeshAsync(address) as mesh:
        adas = (await mesh.tokens.create("ada-of-ports", user_id="ada")).secret
    async with BaseSandboxAsync(base_url=address, bearer_token=adas) as box, MeshAsync(address) as mesh:
        exposed = await box.expose(8000)
        for user in ("ada", None):
            token = await mesh.tokens.create(f"looks-{user}", scope="read-only", user_id=user)
            async with MeshAsync(address, token.secret) as looking:
                assert (await looking.whoami()).read_only
                (listed,) = await looking.ports.list(box.sandbox_id)
                assert (listed.exposure_id, listed.port, listed.url) == (exposed.exposure_id, 8000, "")
                with pytest.raises(PermissionDenied):
                    await looking.ports.expose(box.sandbox_id, 8000)
        assert [port.url for port in await mesh.ports.list(box.sandbox_id)] == [exposed.url]


async def test_a_tab_in_a_location_passes_a_port_without_an_internal_error(world: World) -> None:
    code = (
        "import http.server, threading\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(302)\n"
        "        self.send_header('Location', 'http://local\\thost:8080/next')\n"
        "        self.end_headers()\n"
        "threading.Thread(target=http.server.HTTPServer(('127.0.0.1', 8080), H).serve_forever, daemon=True).start()\n"
    )
    async with BaseSandboxAsync(base_url=world.mesh.addresses[0]) as box, aiohttp.ClientSession() as http:
        await box.run_ipython_cell(code)
        exposed = await box.expose(8080)
        async with http.get(exposed.url, allow_redirects=False) as response:
            assert response.status == 302
            assert response.headers["Location"].endswith("/next")
