"""Volumes of E2B's clients, by requests: whose they are, and what may be in them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.mesh.doors.e2b.e2b_world import World, open_world

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with open_world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(world: World) -> str:
    """Return ada's key."""
    return await world.key("ada")


async def test_volumes_are_each_users_own(world: World, ada: str) -> None:
    key, eve = {"X-API-KEY": ada}, {"X-API-KEY": await world.key("eve of volumes")}
    volumes = [(await world.send("POST", "/volumes", one, json={"name": "shared-name"}))[1] for one in (key, eve)]
    tokens = [{"Authorization": f"Bearer {volume['token']}"} for volume in volumes]
    place = "/volumecontent/shared-name"
    status, _ = await world.send("PUT", f"{place}/file?path=/a/b", tokens[0], data=b"of ada")
    assert status == 201
    assert await world.send("GET", f"{place}/file?path=/a/b", tokens[0]) == (200, "of ada")
    assert (await world.send("GET", f"{place}/file?path=/a/b", tokens[1]))[0] == 404
    assert (await world.send("GET", f"{place}/dir?path=/", tokens[1])) == (200, [])
    assert (await world.send("POST", "/volumes", key, json={"name": "only-ada"}))[0] == 201
    for method, path in (("GET", "/volumes/only-ada"), ("DELETE", "/volumes/only-ada"), ("GET", "/volumes/.e2b")):
        assert (await world.send(method, path, eve))[0] == 404, path
    mounts = [{"name": "only-ada", "path": "/mnt/data"}]
    assert (await world.send("POST", "/v2/sandboxes", eve, json={"volumeMounts": mounts}))[0] == 404
    # A token is of one volume.
    wrong: tuple[dict[str, str], ...] = (
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": "Bearer " + "A" * 80},
        tokens[0],
    )
    for shown in wrong:
        assert (await world.send("GET", "/volumecontent/only-ada/dir?path=/", shown))[0] == 401, shown
    assert (await world.send("DELETE", "/volumes/shared-name", key))[0] == 204
    assert (await world.send("GET", f"{place}/dir?path=/", tokens[0]))[0] == 404


@pytest.mark.parametrize(
    ("name", "status"), [("", 400), (".e2b", 400), ("a/b", 400), ("..", 400), ("x" * 101, 400), ("good_Name-1", 201)]
)
async def test_names_of_volumes_are_checked(world: World, ada: str, name: str, status: int) -> None:
    assert (await world.send("POST", "/volumes", {"X-API-KEY": ada}, json={"name": name}))[0] == status


async def test_contents_of_volumes_stay_in_them(world: World, ada: str) -> None:
    made = (await world.send("POST", "/volumes", {"X-API-KEY": ada}, json={"name": "inner"}))[1]
    token, place = {"Authorization": f"Bearer {made['token']}"}, "/volumecontent/inner"
    for path in ("/../../etc/passwd", "../x", "/./a/../../x"):
        status, found = await world.send("PUT", f"{place}/file", token, params={"path": path}, data=b"x")
        assert (status, ".." in found["path"]) == (201, False), found
    listed = (await world.send("GET", f"{place}/dir?path=/&depth=3", token))[1]
    assert sorted(one["path"] for one in listed) == ["/etc", "/etc/passwd", "/x"]
    assert (await world.send("PATCH", f"{place}/path?path=/x", token, json={"uid": 0}))[0] == 400
    assert (await world.send("PATCH", f"{place}/path?path=/x", token, json={"mode": "x"}))[0] == 400
    assert (await world.send("GET", f"{place}/file?path=/etc", token))[0] == 400
    assert (await world.send("POST", f"{place}/dir?path=/deep/er", token))[0] == 404
    assert (await world.send("GET", f"{place}/nonsense?path=/", token))[0] == 404
    assert (await world.send("DELETE", f"{place}/path?path=/", token))[0] == 400
