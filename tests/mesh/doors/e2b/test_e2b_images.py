"""Templates of E2B's clients that start from images."""

from __future__ import annotations

import asyncio
import base64
import io
import tarfile
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandmeshd.facades.e2b.envd.paths import HOME
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.image_roots import host_root, write_image
from tests.mesh.doors.e2b.e2b_world import World, envelope, envelopes, inside, open_world
from tests.mesh.doors.e2b.test_e2b_templates import build, finish, request_build, run

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    pytest.mark.needs("uids for sandboxes"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run a mesh with an image of this machine's programs, which is E2B's base here."""
    folder = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    await asyncio.to_thread(
        write_image, folder / "base", (host_root(),), Env=["PATH=/usr/bin:/bin:/usr/sbin:/sbin", "FROM_IMAGE=1"]
    )
    store = ImageStore(ImageSettings(images=folder / "images"), folder)
    await store.import_image(folder / "base", "tools:1")
    async with open_world(image_store={"images": folder / "images"}, e2b_base_image="tools:1") as running:
        yield running
    await asyncio.to_thread(remove_tree, folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(world: World) -> dict[str, str]:
    """Return the headers of ada's requests."""
    return {"X-API-KEY": await world.key("ada")}


def packed(**files: str) -> bytes:
    """Return a compressed tar of files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size, member.mode = len(text), 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


async def upload(world: World, user: dict[str, str], template_id: str, files_hash: str, data: bytes) -> None:
    """Upload the files of a step."""
    _, link = await world.send("GET", f"/templates/{template_id}/files/{files_hash}", user)
    status, _ = await world.send("PUT", link["url"].removeprefix(world.url), data=data)
    assert status == 200


async def said(world: World, made: dict[str, Any], command: str, user: str = "") -> str:
    """Run a command as a user; return what it writes."""
    headers = inside(made) | {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
    if user:
        headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:'.encode()).decode()}"
    message = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", command]}, "stdin": False}
    async with world.http.post(f"{world.url}/process.Process/Start", headers=headers, data=envelope(message)) as found:
        events = [one.get("event", {}) for one in envelopes(await found.read())]
    pieces = [value for event in events for value in event.get("data", {}).values()]
    return b"".join(base64.b64decode(piece) for piece in pieces).decode()


COPIES = "ab" * 8
STEPS = [
    {"type": "ENV", "args": ["FLAVOUR", "salt $X"]},
    {"type": "RUN", "args": ["mkdir /etc/made && echo as $(id -un) > /etc/made/by", "root"]},
    {"type": "COPY", "args": ["app/", "/opt/app", "", ""], "filesHash": COPIES},
    {"type": "COPY", "args": ["app/one.txt", "notes/", "root", "0600"], "filesHash": COPIES},
    {"type": "WORKDIR", "args": ["/srv/work"]},
    {"type": "RUN", "args": ["echo $(id -un) in $(pwd) with $FLAVOUR > own; echo home > ~/kept"]},
]


async def test_a_template_of_an_image_has_steps_as_root_and_copies_anywhere(world: World, ada: dict[str, str]) -> None:
    template_id, build_id = await request_build(world, ada, "rooted")
    await upload(world, ada, template_id, COPIES, packed(app__one="1", app__two="2", **{"app/one.txt": "text"}))
    shown = await finish(
        world, ada, template_id, build_id, fromImage="tools:1", steps=STEPS, startCmd="id -un > /tmp/starter; sleep 60",
        readyCmd="[ -s /tmp/starter ]",
    )  # fmt: skip
    assert shown["status"] == "ready", shown["reason"]
    made = await world.create(ada["X-API-KEY"], templateID="rooted")
    look = "id -un; pwd; cat own /etc/made/by /opt/app/one ~/kept; echo $FLAVOUR $FROM_IMAGE"
    look += "; stat -c '%U %n' /opt/app/two ~/kept"
    assert (await said(world, made, look)).split("\n")[:-1] == [
        *("user", "/srv/work", "user in /srv/work with salt $X", "as root", "1home", "salt $X 1"),
        *("user /opt/app/two", f"user {HOME}/kept"),
    ]
    look = "id -un; echo $HOME; cat ~user/notes/one.txt /tmp/starter"
    look += "; stat -c '%U %a' ~user/notes/one.txt; touch /etc/new; ls /etc/new"
    assert (await said(world, made, look, "root")).split("\n") == [
        *("root", "/root", "textuser", "root 600", "/etc/new", ""),
    ]
    headers = inside(made) | {"Content-Type": "application/octet-stream"}
    status, found = await world.send("POST", "/files?path=sub/file.txt", headers, data=b"mine")
    assert status == 200, found
    assert (
        await said(world, made, "stat -c %U ~/sub ~/sub/file.txt; cat ~/sub/file.txt; touch ~/sub/x")
        == "user\nuser\nmine"
    )
    assert (await said(world, made, "id -un", "nobody-here")).startswith("setpriv")


async def test_files_outside_of_the_workspace_of_an_image_without_python_are_refused_with_the_reason(
    world: World, ada: dict[str, str]
) -> None:
    shown = await build(world, ada, "plain", fromImage="tools:1", steps=[])
    assert shown["status"] == "ready", shown["reason"]
    made = inside(await world.create(ada["X-API-KEY"], templateID="plain"))
    status, found = await world.send("POST", "/filesystem.Filesystem/MakeDir", made, json={"path": "/srv/made"})
    assert status == 400, found
    assert found["message"] == "files outside of the workspace need python3 in the image, which has none: /srv/made"
    status, found = await world.send("POST", "/filesystem.Filesystem/MakeDir", made, json={"path": "made"})
    assert status == 200, found


async def test_a_template_of_a_template_with_an_image_goes_on_from_there(world: World, ada: dict[str, str]) -> None:
    first = await build(world, ada, "first", fromTemplate="base", steps=[run("echo 1 > ~/one")])
    assert first["status"] == "ready", first["reason"]
    steps = [
        {"type": "RUN", "args": ["id -un > /etc/second; cat ~user/one >> /etc/second", "root"]},
        run("id -un > ~/two"),
    ]
    second = await build(world, ada, "second", fromTemplate="first", steps=steps)
    assert second["status"] == "ready", second["reason"]
    made = await world.create(ada["X-API-KEY"], templateID="second")
    assert await said(world, made, "cat /etc/second ~/two") == "root\n1\nuser\n"


async def test_what_fails_in_an_image_is_told_with_its_line_and_no_other_image_is_reached(
    world: World, ada: dict[str, str]
) -> None:
    failed = await build(world, ada, "failing", fromImage="tools:1", steps=[run("echo looked for; exit 3")])
    assert failed["status"] == "error"
    assert "ended with code 3" in failed["reason"]["message"]
    assert any("looked for" in entry["message"] for entry in failed["logEntries"])
    missing = await build(world, ada, "missing", fromImage="localhost:1/none", steps=[])
    assert missing["status"] == "error"
    assert "localhost:1" in missing["reason"]["message"]
