"""Profiles of browsers: cookies and storage that outlive their sandbox, in real Chromium."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, BrowserSandboxAsync, MeshAsync, errors
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

pytestmark = [
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

SITE = "http://localhost:8000"
OPEN = """
  const database = await new Promise((done) => {
    const open = indexedDB.open('notes', 1);
    open.onupgradeneeded = () => open.result.createObjectStore('all');
    open.onsuccess = () => done(open.result);
  });
"""
LOG_IN = f"""async () => {{
  document.cookie = 'lasting=yes; max-age=86400; path=/';
  document.cookie = 'login=session-of-ada; path=/';
  localStorage.setItem('cart', 'three plums');
  {OPEN}
  const writing = database.transaction('all', 'readwrite');
  writing.objectStore('all').put('remember me', 'first');
  await new Promise((done) => {{ writing.oncomplete = done; }});
  database.close();
}}"""
SHOWN = f"""async () => {{
  {OPEN}
  const reading = database.transaction('all').objectStore('all').get('first');
  await new Promise((done) => {{ reading.onsuccess = done; }});
  database.close();
  const cookies = document.cookie.split('; ').sort().join(';');
  return [cookies, localStorage.getItem('cart') || '', reading.result || ''];
}}"""
KEPT = ["lasting=yes;login=session-of-ada", "three plums", "remember me"]
NOTHING = ["", "", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the storage."""
    return tmp_path_factory.mktemp("kept")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(folder: Path) -> AsyncGenerator[Mesh]:
    """Run a mesh with a storage."""
    async with run_mesh(storage_folder=folder) as running:
        yield running


@asynccontextmanager
async def browsing(mesh: Mesh, **options: Any) -> AsyncGenerator[BrowserSandboxAsync]:
    """Open a sandbox that serves a page of its own."""
    async with BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120, **options) as box:
        await box.fs.write("site/index.html", "<title>Shop</title><p>Welcome")
        server = await box.processes.start("python3 -m http.server -d site 8000")
        await server.wait_for_port(8000)
        assert not (await box.browser_navigate(SITE)).is_error
        yield box


async def shown(box: BrowserSandboxAsync) -> Any:
    """Return the cookies, the local storage and the database of the page."""
    result = await box.browser_evaluate(SHOWN)
    assert not result.is_error, result.text
    return json.loads(result.text)


def saved_bytes(folder: Path) -> bytes:
    """Return all that the storage has."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_a_profile_has_its_cookies_and_storage_in_the_next_sandbox(mesh: Mesh, folder: Path) -> None:
    async with browsing(mesh, profile="ada") as box:
        assert await shown(box) == NOTHING
        assert not (await box.browser_evaluate(LOG_IN)).is_error
        assert (await box.get_info())["spec"]["browser_profile"] == "ada"
    # A sandbox that follows at once waits until the profile is saved.
    async with browsing(mesh, profile="ada") as box:
        assert await shown(box) == KEPT
    async with browsing(mesh, profile="other") as box:
        assert await shown(box) == NOTHING
    async with browsing(mesh) as box:
        assert await shown(box) == NOTHING
    data = saved_bytes(folder)
    assert data
    for secret in (b"session-of-ada", b"three plums", b"remember me", b"Default/"):
        assert secret not in data


async def test_a_profile_that_no_browser_used_stays_as_it_is(mesh: Mesh) -> None:
    async with browsing(mesh, profile="idle") as box:
        assert not (await box.browser_evaluate(LOG_IN)).is_error
    async with BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120, profile="idle"):
        pass
    async with browsing(mesh, profile="idle") as box:
        assert await shown(box) == KEPT


async def test_a_profile_in_use_is_refused_by_name(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with BrowserSandboxAsync(base_url=address, profile="busy") as first:
        with pytest.raises(
            errors.WrongState, match=f"browser profile 'busy' is in use by the sandbox {first.sandbox_id}"
        ):
            await BrowserSandboxAsync(base_url=address, profile="busy").start()
        async with BrowserSandboxAsync(base_url=address, profile="free"):
            pass
    async with BrowserSandboxAsync(base_url=address, profile="busy"):
        pass


async def test_of_several_that_want_a_profile_at_once_one_gets_it(mesh: Mesh) -> None:
    boxes = [BrowserSandboxAsync(base_url=mesh.addresses[0], profile="race") for _ in range(4)]
    results = await asyncio.gather(*(box.start() for box in boxes), return_exceptions=True)
    refused = [error for error in results if isinstance(error, BaseException)]
    assert len(refused) == 3
    assert all(isinstance(one, errors.WrongState) for one in refused)
    for box, result in zip(boxes, results, strict=True):
        if not isinstance(result, BaseException):
            await box.close()


FILL = "mkdir -p ~/.cache/sandmesh-browser && echo mine > ~/.cache/sandmesh-browser/mark && echo ours > file"
SHOW = "cat ~/.cache/sandmesh-browser/mark file"


async def test_a_session_comes_back_with_its_workspace_and_its_profile(mesh: Mesh) -> None:
    async with MeshAsync(mesh.addresses[0]) as client, asyncio.timeout(120):
        for command, shows in ((FILL, ""), (SHOW, "mine\nours\n")):
            made = await client.sessions.connect("chat", "bob", "browser", profile="mine")
            async with BrowserSandboxAsync(made.sandboxes["browser"], base_url=mesh.addresses[0]) as box:
                assert (await box.run_shell_command(command)).text == shows
            await client.sessions.release("chat", "bob")


async def test_users_have_profiles_of_their_own(mesh: Mesh) -> None:
    async with MeshAsync(mesh.addresses[0]) as client:
        made = [await client.sessions.connect("chat", user, "browser", profile="same") for user in ("cleo", "dora")]
        assert len({one.sandboxes["browser"] for one in made}) == 2
        # Who returns to a session has the profile already.
        again = await client.sessions.connect("chat", "cleo", "browser", profile="same")
        assert again.sandboxes == made[0].sandboxes
        with pytest.raises(errors.WrongState, match="'same' is in use"):
            await client.sessions.connect("another", "cleo", "browser", profile="same")
        for user in ("cleo", "dora"):
            await client.sessions.release("chat", user)


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 64, "a+b"])
async def test_a_name_that_is_none_is_refused(mesh: Mesh, name: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="profile"):
        await BrowserSandboxAsync(base_url=mesh.addresses[0], profile=name).start()


async def test_a_sandbox_without_a_browser_has_no_profile(mesh: Mesh) -> None:
    with pytest.raises(errors.InvalidArgument, match="use the type browser"):
        await BaseSandboxAsync(base_url=mesh.addresses[0], profile="ada").start()


async def test_a_mesh_without_a_storage_says_what_to_set() -> None:
    async with run_mesh() as mesh:
        with pytest.raises(errors.CapabilityMissing, match="SANDMESH_STORAGE_FOLDER"):
            await BrowserSandboxAsync(base_url=mesh.addresses[0], profile="ada").start()


async def test_a_profile_of_a_mesh_with_another_secret_is_not_used(folder: Path) -> None:
    settings: dict[str, Any] = {"storage_folder": folder.with_name("moved"), "mesh_id": f"moved-{os.getpid()}"}
    async with run_mesh(**settings, mesh_secret="a" * 40) as mesh, asyncio.timeout(120):
        async with BrowserSandboxAsync(base_url=mesh.addresses[0], profile="ada"):
            pass
        while not list(settings["storage_folder"].rglob("manifest.json")):  # noqa: ASYNC110 - files have no event
            await asyncio.sleep(0.05)
    async with run_mesh(**settings, mesh_secret="b" * 40) as mesh:
        with pytest.raises(errors.SandmeshError, match="saved by a mesh with another secret"):
            await BrowserSandboxAsync(base_url=mesh.addresses[0], profile="ada").start()
