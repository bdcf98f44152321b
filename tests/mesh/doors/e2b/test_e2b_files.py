"""What E2B's clients see of files and processes that change under them, by the requests that they send."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.mesh.doors.e2b.e2b_world import HEAD, World, envelope, envelopes, inside, open_world

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOME = "/home/user"
OCTETS = {"Content-Type": "application/octet-stream"}
STREAM = {"Content-Type": "application/connect+json"}


class Sandbox:
    """A sandbox as a client uses it."""

    def __init__(self, world: World, headers: dict[str, str]) -> None:
        self._world = world
        self.headers = headers

    async def files(self, method: str, **message: Any) -> dict[str, Any]:
        """Call a method of `filesystem.Filesystem`."""
        status, found = await self._world.send("POST", f"/filesystem.Filesystem/{method}", self.headers, json=message)
        assert status == 200, found
        return dict(found)

    async def write(self, path: str, data: bytes = b"x", **metadata: str) -> dict[str, Any]:
        """Write a file."""
        headers = {**self.headers, **OCTETS, **{f"X-Metadata-{name}": value for name, value in metadata.items()}}
        status, found = await self._world.send("POST", f"/files?path={path}", headers, data=data)
        assert status == 200, found
        return dict(found[0])

    async def run(self, command: str) -> str:
        """Run a command to its end, and return what it wrote."""
        return await self.follow("Start", {"process": {"cmd": "/bin/bash", "args": ["-c", command]}})

    async def follow(self, method: str, message: dict[str, Any]) -> str:
        """Return what a process writes to its end."""
        async with self._world.http.post(
            f"{self._world.url}/process.Process/{method}", headers={**self.headers, **STREAM}, data=envelope(message)
        ) as response:
            events = [one["event"] for one in envelopes(await response.read()) if "event" in one]
        assert "end" in events[-1], events
        written = [data for event in events for data in event.get("data", {}).values()]
        return b"".join(map(base64.b64decode, written)).decode()

    async def watch(self, path: str, **options: bool) -> str:
        """Watch a directory; return the watcher's id."""
        return str((await self.files("CreateWatcher", path=path, **options))["watcherId"])

    async def changes(self, watcher: str) -> list[tuple[str, str]]:
        """Return what a watcher has seen since the last time: names, and kinds in lower case."""
        events = (await self.files("GetWatcherEvents", watcherId=watcher))["events"]
        return [(event["name"], event["type"].removeprefix("EVENT_TYPE_").lower()) for event in events]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with open_world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(world: World) -> Sandbox:
    """Make one sandbox for all tests."""
    return Sandbox(world, inside(await world.create(await world.key("ada"))))


async def test_what_a_client_changes_is_seen_by_watchers_before_its_answer(box: Sandbox) -> None:
    await box.files("MakeDir", path="seen")
    await box.write("seen/old")
    watcher = await box.watch("seen")
    await box.write("seen/old", b"again")
    assert await box.changes(watcher) == [("old", "write")]
    await box.write("seen/new")
    assert await box.changes(watcher) == [("new", "create"), ("new", "write")]
    await box.files("MakeDir", path="seen/folder")
    assert await box.changes(watcher) == [("folder", "create")]
    await box.files("Move", source="seen/old", destination="seen/renamed")
    assert await box.changes(watcher) == [("old", "rename"), ("renamed", "create")]
    await box.files("Remove", path="seen/renamed")
    await box.files("Remove", path="seen/renamed")
    assert await box.changes(watcher) == [("renamed", "remove")]


async def test_a_watcher_of_a_tree_sees_what_is_written_in_new_directories_of_it(box: Sandbox) -> None:
    await box.files("MakeDir", path="tree")
    watcher, flat = await box.watch("tree", recursive=True), await box.watch("tree")
    await box.files("MakeDir", path="tree/nested")
    await box.write("tree/nested/file")
    assert ("nested/file", "write") in await box.changes(watcher)
    await box.write("tree/a/b/file")
    assert ("a/b/file", "write") in await box.changes(watcher)
    assert {name for name, _ in await box.changes(flat)} == {"nested", "a"}


async def test_many_writes_at_the_same_time_are_each_reported_once(box: Sandbox) -> None:
    names = [f"many{number}" for number in range(20)]
    await box.files("MakeDir", path="many")
    watchers = [await box.watch("many"), await box.watch("many")]
    await asyncio.gather(*(box.write(f"many/{name}") for name in names))
    for watcher in watchers:
        assert sorted(await box.changes(watcher)) == sorted(
            (name, kind) for name in names for kind in ("create", "write")
        )


async def test_links_have_the_path_that_they_lead_to(box: Sandbox) -> None:
    await box.write("real/file")
    await box.run(
        "ln -s file real/near; ln -s real/near far; ln -s real folder; ln -s nowhere lost; ln -s /etc/passwd out"
    )
    (real, kind) = (f"{HOME}/real/file", "FILE_TYPE_FILE")
    expected = {"real/near": (real, kind), "far": (real, kind), "folder": (f"{HOME}/real", "FILE_TYPE_DIRECTORY")}
    expected |= {"lost": (f"{HOME}/lost", "FILE_TYPE_SYMLINK"), "out": ("/etc/passwd", kind)}
    for name, (target, type_) in expected.items():
        entry = (await box.files("Stat", path=name))["entry"]
        assert (entry["symlinkTarget"], entry["type"], entry["isSymlink"]) == (target, type_, True), name
    listed = {entry["name"]: entry for entry in (await box.files("ListDir", path="."))["entries"] if entry["isSymlink"]}
    assert {name: one["symlinkTarget"] for name, one in listed.items()} == {
        name: target for name, (target, _) in expected.items() if "/" not in name
    }


async def test_attributes_that_programs_set_inside_are_metadata(box: Sandbox) -> None:
    await box.write("marked", b"x", author="ada")
    await box.write("plain")
    program = "import os; os.setxattr('{0}', 'user.e2b.by', b'a program'); os.setxattr('{0}', 'user.other', b'x')"
    for path in ("marked", "plain", "/tmp/plain"):
        await box.run(f'touch {path}; python3 -c "{program.format(path)}"')
    assert (await box.files("Stat", path="marked"))["entry"]["metadata"] == {"author": "ada", "by": "a program"}
    assert (await box.files("Stat", path="/tmp/plain"))["entry"]["metadata"] == {"by": "a program"}
    listed = {entry["name"]: entry.get("metadata") for entry in (await box.files("ListDir", path="."))["entries"]}
    assert (listed["plain"], listed["marked"]) == ({"by": "a program"}, {"author": "ada", "by": "a program"})
    for path in ("marked", "/tmp/plain"):
        await box.write(path)
        assert "metadata" not in (await box.files("Stat", path=path))["entry"], path


async def _first(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """Return the first message of a stream."""
    head = await response.content.readexactly(HEAD.size)
    return dict(json.loads(await response.content.readexactly(HEAD.unpack(head)[1])))


async def test_one_who_connects_later_gets_the_output_from_its_beginning(world: World, box: Sandbox) -> None:
    command = "for i in $(seq 40); do echo line $i; [ $i != 25 ] || read; done"
    start = {"process": {"cmd": "/bin/bash", "args": ["-c", command]}, "tag": "counter"}
    async with world.http.post(
        f"{world.url}/process.Process/Start", headers={**box.headers, **STREAM}, data=envelope(start)
    ) as response:
        selector = {"process": {"tag": "counter"}}
        pid = (await _first(response))["event"]["start"]["pid"]
        following = [asyncio.create_task(box.follow("Connect", each)) for each in (selector, {"process": {"pid": pid}})]
        entered = {"stdin": base64.b64encode(b"\n").decode()}
        sent = await world.send("POST", "/process.Process/SendInput", box.headers, json={**selector, "input": entered})
        assert sent[0] == 200
    lines = "".join(f"line {number}\n" for number in range(1, 41))
    assert await asyncio.gather(*following) == [lines, lines]
    assert await box.follow("Connect", {"process": {"pid": pid}}) == lines


async def test_what_is_kept_of_an_output_is_bounded(box: Sandbox) -> None:
    command = "echo $$; head -c 3000000 /dev/zero | tr '\\0' x; echo end"
    pid = int((await box.run(command)).partition("\n")[0])
    kept = await box.follow("Connect", {"process": {"pid": pid}})
    assert 1000 < len(kept) <= 256 << 10
    assert kept.endswith("xend\n")


async def test_a_pause_of_files_alone_is_another_boot(world: World) -> None:
    key = {"X-API-KEY": await world.key("sleeper")}
    made = await world.create(key["X-API-KEY"])
    box = Sandbox(world, inside(made))
    boots: list[str] = []
    for memory in (None, True, False, False):
        if memory is not None:
            assert (await world.send("POST", f"/sandboxes/{made['sandboxID']}/pause", key, json={"memory": memory}))[
                0
            ] == 204
            assert (await world.send("POST", f"/v2/sandboxes/{made['sandboxID']}/connect", key, json={}))[0] == 201
        boots.append((await box.run("cat /proc/sys/kernel/random/boot_id")).strip())
    assert boots[0] == boots[1]
    assert len({*boots}) == 3, boots
    assert all(len(boot) == 36 for boot in boots)
