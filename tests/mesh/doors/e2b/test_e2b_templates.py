"""Templates, named snapshots and forks of E2B's clients, by requests of theirs and by those they never send."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from sandmesh.mesh import MeshAsync
from tests.mesh.doors.e2b.e2b_world import World, inside, open_world
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with open_world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(world: World) -> dict[str, str]:
    """Return the headers of ada's requests."""
    return {"X-API-KEY": await world.key("ada")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def eve(world: World) -> dict[str, str]:
    """Return the headers of another user's requests."""
    return {"X-API-KEY": await world.key("eve")}


async def request_build(world: World, user: dict[str, str], name: str, **values: Any) -> tuple[str, str]:
    """Request a build; return the ids of its template and of itself."""
    status, found = await world.send("POST", "/v3/templates", user, json={"name": name, **values})
    assert status == 202, found
    return found["templateID"], found["buildID"]


async def build(world: World, user: dict[str, str], name: str, **plan: Any) -> dict[str, Any]:
    """Build a template; return the status at its end."""
    template_id, build_id = await request_build(world, user, name)
    return await finish(world, user, template_id, build_id, **plan)


async def finish(world: World, user: dict[str, str], template_id: str, build_id: str, **plan: Any) -> dict[str, Any]:
    """Start a build and wait for its end."""
    place = f"templates/{template_id}/builds/{build_id}"
    status, found = await world.send("POST", f"/v2/{place}", user, json={"steps": [], **plan})
    assert status == 202, found
    shown: dict[str, Any] = {}

    async def has_ended() -> bool:
        shown.update((await world.send("GET", f"/{place}/status", user))[1])
        return shown["status"] in ("ready", "error")

    await until(has_ended, 60)
    return shown


async def in_use(world: World) -> int:
    """Return how many sandboxes are in use."""
    async with MeshAsync(world.mesh.addresses[0]) as client:
        return sum(sandbox.in_use for sandbox in await client.sandboxes.list())


def run(command: str) -> dict[str, Any]:
    """Return a step that runs a command."""
    return {"type": "RUN", "args": [command]}


async def test_another_users_templates_and_builds_are_not_found_by_any_route(
    world: World, ada: dict[str, str], eve: dict[str, str]
) -> None:
    template_id, build_id = await request_build(world, ada, "hers")
    place = f"/templates/{template_id}"
    routes: list[tuple[str, str, dict[str, Any] | None]] = [
        ("GET", f"{place}/files/{'a' * 64}", None),
        ("POST", f"/v2{place}/builds/{build_id}", {"steps": []}),
        ("GET", f"{place}/builds/{build_id}/status", None),
        ("GET", place, None),
        ("DELETE", place, None),
        ("GET", f"{place}/tags", None),
        ("GET", "/templates/hers/tags", None),
        ("GET", "/templates/aliases/hers", None),
        ("DELETE", "/templates/hers", None),
        ("POST", "/templates/tags", {"target": "hers", "tags": ["x"]}),
        ("DELETE", "/templates/tags", {"name": "hers", "tags": ["default"]}),
        ("POST", "/v2/sandboxes", {"templateID": "hers"}),
        ("POST", "/v2/sandboxes", {"templateID": template_id}),
    ]
    for built in (False, True):
        if built:
            assert (await finish(world, ada, template_id, build_id))["status"] == "ready"
        for method, path, body in routes:
            status, found = await world.send(method, path, eve, json=body)
            assert status == 404, (method, path, found)
        for method, path, body in routes:
            assert (await world.send(method, path, json=body))[0] == 401, (method, path)
    assert all("hers" not in one["aliases"] for one in (await world.send("GET", "/templates", eve))[1])
    # A name is each user's own.
    assert (await build(world, eve, "hers", steps=[run("echo eve > mine")]))["status"] == "ready"
    made = await world.create(ada["X-API-KEY"], templateID="hers")
    assert (await world.send("GET", "/files?path=mine", inside(made)))[0] == 404
    assert (await world.send("DELETE", "/templates/hers", ada))[0] == 204
    assert (await world.send("GET", "/templates/aliases/hers", eve))[0] == 200


async def test_a_tag_is_at_one_build_and_moves(world: World, ada: dict[str, str]) -> None:
    for number in ("1", "2"):
        template_id, build_id = await request_build(world, ada, "tagged", tags=[f"v{number}", "default"])
        await finish(world, ada, template_id, build_id, steps=[run(f"echo {number} > number")])
    for tag, number in (("", "2"), (":v1", "1"), (":v2", "2"), (":default", "2")):
        made = await world.create(ada["X-API-KEY"], templateID=f"tagged{tag}")
        assert (await world.send("GET", "/files?path=number", inside(made)))[1] == f"{number}\n", tag
    status, found = await world.send("POST", "/v2/sandboxes", ada, json={"templateID": "tagged:v3"})
    assert (status, "default, v1, v2" in found["message"]) == (404, True)
    body = {"target": "tagged:v1", "tags": ["default"]}
    assert (await world.send("POST", "/templates/tags", ada, json=body))[0] == 201
    made = await world.create(ada["X-API-KEY"], templateID="tagged")
    assert (await world.send("GET", "/files?path=number", inside(made)))[1] == "1\n"
    assert (await world.send("GET", f"/templates/{template_id}", ada))[1]["buildCount"] == 2
    assert (await world.send("DELETE", "/templates/tagged", ada))[0] == 204
    assert (await world.send("DELETE", "/templates/tagged", ada))[0] == 404


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"steps": [run("exit 3")]}, "code 3"),
        ({"steps": [run("kill -9 $$")]}, "signal 9"),
        ({"steps": [{"type": "USER", "args": ["nobody"]}]}, "nobody"),
        ({"steps": [{"type": "WORKDIR", "args": ["/app"]}]}, "code 1"),
        ({"steps": [{"type": "COPY", "args": ["a", "/opt/a"], "filesHash": "a" * 64}]}, "/home/user"),
        ({"steps": [{"type": "COPY", "args": ["a", "a", "ada"], "filesHash": "a" * 64}]}, "ada"),
        ({"steps": [{"type": "COPY", "args": ["a", "a"], "filesHash": "a" * 64}]}, "not uploaded"),
    ],
)
async def test_a_build_that_fails_says_why_and_leaves_nothing(
    world: World, ada: dict[str, str], plan: dict[str, Any], says: str
) -> None:
    before = await in_use(world)
    shown = await build(world, ada, "broken", **plan)
    assert (shown["status"], shown["reason"]["step"]) == ("error", "1")
    assert says in shown["reason"]["message"]
    assert (await world.send("GET", "/templates/aliases/broken", ada))[0] == 404
    assert await in_use(world) == before


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v3/templates", {"name": ""}, 400, "is not a name"),
        ("/v3/templates", {"name": "No Name"}, 400, "is not a name"),
        ("/v3/templates", {"name": "base"}, 409, "base"),
        ("/v3/templates", {"name": "filesystem"}, 409, "filesystem"),
        ("/v3/templates", {"name": "x", "tags": [1]}, 400, "tag"),
        ("/v3/templates", {"name": "x", "minFreeDiskMb": 100}, 400, "minFreeDiskMb"),
        ("build", {"fromImageRegistry": {"type": "aws"}}, 400, "fromImageRegistry"),
        ("build", {"fromTemplate": "nonsense"}, 404, "nonsense"),
        ("build", {"steps": {"a": 1}}, 400, "steps"),
        ("build", {"steps": [{"type": "SHELL", "args": ["x"]}]}, 400, "step 1"),
        ("build", {"steps": [{"type": "ENV", "args": ["A", "1", "B"]}]}, 400, "ENV"),
        ("build", {"steps": [{"type": "COPY", "args": ["a", "b"], "filesHash": "../x"}]}, 400, "filesHash"),
    ],
)
async def test_what_cannot_be_built_is_refused_before_it_begins(
    world: World, ada: dict[str, str], path: str, body: dict[str, Any], status: int, says: str
) -> None:
    if path == "build":
        path = "/v2/templates/{}/builds/{}".format(*await request_build(world, ada, "refused"))
    found_status, found = await world.send("POST", path, ada, json=body)
    assert (found_status, says in found["message"]) == (status, True), found


def archive(**files: str) -> bytes:
    """Return a tar archive."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as made:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content.encode()))
    return data.getvalue()


async def test_files_go_to_the_build_whose_link_is_shown_alone(
    world: World, ada: dict[str, str], eve: dict[str, str]
) -> None:
    template_id, build_id = await request_build(world, ada, "files")
    files_hash = "b" * 64
    status, link = await world.send("GET", f"/templates/{template_id}/files/{files_hash}", ada)
    assert (status, link["present"]) == (201, False)
    for url in (link["url"].replace("b" * 64, "c" * 64), link["url"][:-1] + "x", link["url"].partition("?")[0]):
        async with world.http.put(url, data=b"x", headers=eve) as response:
            assert response.status == 403
    async with world.http.put(link["url"], data=archive(note="of the client")) as response:
        assert response.status == 200
    assert (await world.send("GET", f"/templates/{template_id}/files/{files_hash}", ada))[1]["present"]
    step = {"type": "COPY", "args": ["note", "deep/down/"], "filesHash": files_hash}
    assert (await finish(world, ada, template_id, build_id, steps=[step]))["status"] == "ready"
    made = await world.create(ada["X-API-KEY"], templateID="files")
    assert (await world.send("GET", "/files?path=deep/down/note", inside(made)))[1] == "of the client"
    async with world.http.put(link["url"], data=b"x") as response:
        assert response.status == 404
    assert (await world.send("GET", f"/templates/{template_id}/files/{files_hash}", ada))[0] == 404


async def test_a_fork_has_the_files_and_variables_and_each_is_refused_by_itself(
    world: World, ada: dict[str, str], eve: dict[str, str]
) -> None:
    made = await world.create(ada["X-API-KEY"], envVars={"MODE": "it's = odd"}, metadata={"a": "b"})
    place, saved = f"/sandboxes/{made['sandboxID']}", await world.send("GET", "/snapshots", ada)
    async with world.http.post(
        f"{world.url}/files?path=note",
        data=b"kept",
        headers=inside(made) | {"Content-Type": "application/octet-stream"},
    ) as response:
        assert response.status == 200
    assert (await world.send("POST", "/execute", inside(made, 49_999), json={"code": "kept = 41"}))[0] == 200
    status, forks = await world.send("POST", f"{place}/fork", ada, json={"timeout": 60, "count": 2})
    assert (status, len(forks)) == (201, 2)
    for one in (fork["sandbox"] for fork in forks):
        assert (await world.send("GET", "/files?path=note", inside(one)))[1] == "kept"
        values = {"code": "import os; print(os.environ['MODE'], kept + 1)"}
        _, lines = await world.send("POST", "/execute", inside(one, 49_999), json=values)
        assert any(json.loads(line).get("text") == "it's = odd 42\n" for line in lines.splitlines())
        shown = (await world.send("GET", f"/sandboxes/{one['sandboxID']}", ada))[1]
        assert shown["metadata"] == {"a": "b"}
    assert await world.send("GET", "/snapshots", ada) == saved
    for body in ({"count": 0}, {"count": 21}, {"timeout": -1}):
        assert (await world.send("POST", f"{place}/fork", ada, json=body))[0] == 400
    assert (await world.send("POST", f"{place}/fork", eve, json={}))[0] == 404
    assert (await world.send("POST", f"{place}/pause", ada, json={}))[0] == 204
    assert (await world.send("POST", f"{place}/fork", ada, json={}))[0] == 409


async def test_a_snapshots_name_is_its_owners_and_goes_to_the_newest(
    world: World, ada: dict[str, str], eve: dict[str, str]
) -> None:
    made = await world.create(ada["X-API-KEY"])
    place = f"/sandboxes/{made['sandboxID']}/snapshots"
    first = (await world.send("POST", place, ada, json={"name": "state"}))[1]
    second = (await world.send("POST", place, ada, json={"name": "state"}))[1]
    assert second["names"] == ["state:default"]
    listed = (await world.send("GET", "/snapshots?name=state", ada))[1]
    assert [one["snapshotID"] for one in listed] == [second["snapshotID"]]
    assert (await world.send("GET", "/snapshots?name=state", eve))[1] == []
    assert (await world.send("POST", "/v2/sandboxes", eve, json={"templateID": "state"}))[0] == 404
    assert (await world.send("POST", "/v2/sandboxes", eve, json={"templateID": first["snapshotID"]}))[0] == 404
    assert (await world.send("DELETE", f"/templates/{first['snapshotID']}", eve))[0] == 404
    assert (await world.send("POST", place, ada, json={"name": "base"}))[0] == 409
    assert (await world.send("POST", place, ada, json={"name": "../x"}))[0] == 400
    for one in (first, second):
        assert (await world.send("DELETE", f"/templates/{one['snapshotID']}", ada))[0] == 204
    assert (await world.send("POST", "/v2/sandboxes", ada, json={"templateID": "state"}))[0] == 404
