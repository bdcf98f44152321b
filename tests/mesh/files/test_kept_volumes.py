"""Volumes in the storage of workspaces: what sandboxes and E2B's clients leave in them outlives the mesh's machine."""

from __future__ import annotations

import asyncio
import io
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync, errors
from sandmeshd.mesh import Mesh
from sandmeshd.runtime.paths import default_state_directory
from tests.mesh.conftest import MeshMaker
from tests.mesh.doors.e2b.e2b_world import open_world
from tests.mesh.files.test_storage import FILL, SUMS, shell
from tests.s3 import BUCKET, KEY
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.needs("user namespaces"), pytest.mark.timeout(120)]

DATA = "/mnt/data"


@pytest.fixture(params=["local", "s3"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of meshes of one id with a storage of each kind, whose state is removed at their ends."""
    mesh_id = f"test-{secrets.token_hex(5)}"
    if request.param == "local":
        return {"mesh_id": mesh_id, "storage_folder": tmp_path / "kept"}
    s3 = {f"storage_{name}": KEY for name in ("key_id", "key_secret")} | {"storage_bucket": BUCKET}
    endpoint: str = request.getfixturevalue("s3")
    return {"mesh_id": mesh_id, "file_system": "s3", "storage_folder": mesh_id, "storage_endpoint": endpoint, **s3}


@asynccontextmanager
async def boxed(mesh: Mesh, **volumes: str) -> AsyncGenerator[BaseSandboxAsync]:
    """Run a sandbox with volumes, by the last parts of their places."""
    places = {f"/mnt/{place}": name for place, name in volumes.items()}
    async with BaseSandboxAsync(base_url=mesh.addresses[0], volumes=places) as box:
        yield box


def copies(kept: dict[str, Any]) -> Callable[[], list[str]]:
    """Return what lists the names of the copies that the node has."""
    folder = default_state_directory() / "meshes" / kept["mesh_id"] / "volumes"
    return lambda: sorted(path.name for path in folder.glob("*/*"))


async def none_is_left(kept: dict[str, Any]) -> None:
    """Wait until what was in volumes is in the storage alone."""

    async def gone() -> bool:
        return not copies(kept)()

    await until(gone, 20)


async def test_a_volume_is_byte_for_byte_in_the_storage_once_its_last_sandbox_has_ended(
    make_mesh: MeshMaker, kept: dict[str, Any]
) -> None:
    async with make_mesh(**kept) as mesh:
        async with boxed(mesh, data="numbers", other="letters") as one, boxed(mesh, data="numbers") as two:
            await shell(one, f"cd {DATA} && {FILL}")
            before = await shell(two, f"cd {DATA} && {SUMS}")
            assert copies(kept)() == ["letters", "numbers"]
        await none_is_left(kept)
        async with boxed(mesh, data="numbers") as three:
            assert await shell(three, f"cd {DATA} && {SUMS}") == before
            await shell(three, f"cd {DATA} && rm -r 'a b' large && echo more > more && chmod 700 empty")
            before = await shell(three, f"cd {DATA} && {SUMS}")
            # Of user code's own uid, as all that is written in a sandbox.
            assert await shell(three, f"find {DATA} ! -user $(id -u)") == ""
    # Another machine has the storage, and nothing of the first's disk.
    async with make_mesh(**kept) as mesh, boxed(mesh, data="numbers") as four:
        assert await shell(four, f"cd {DATA} && {SUMS}") == before
        await shell(four, f"chmod -R u+rwx {DATA} && find {DATA} -mindepth 1 -delete")
    async with make_mesh(**kept) as mesh, boxed(mesh, data="numbers") as five:
        assert await shell(five, f"ls -A {DATA}") == ""


async def test_volumes_of_e2bs_clients_outlive_the_machine(kept: dict[str, Any]) -> None:
    async with open_world(**kept) as world:
        key = {"X-API-KEY": await world.key("ada")}
        made = (await world.send("POST", "/volumes", key, json={"name": "notes"}))[1]
        token = {"Authorization": f"Bearer {made['token']}"}
        content = "/volumecontent/notes/file?path=/a/first"
        assert (await world.send("PUT", content, token, data=io.BytesIO(b"x" * 3_000_000)))[0] == 201
    async with open_world(**kept) as world:
        key = {"X-API-KEY": await world.key("ada")}
        (found,) = (await world.send("GET", "/volumes", key))[1]
        assert found == {"volumeID": "notes", "name": "notes"}
        token = {"Authorization": f"Bearer {(await world.send('GET', '/volumes/notes', key))[1]['token']}"}
        assert await world.send("GET", content, token) == (200, "x" * 3_000_000)
        assert (await world.send("DELETE", "/volumes/notes", key))[0] == 204
        assert (await world.send("GET", "/volumes", key))[1] == []


async def test_what_the_storage_does_not_take_stays_on_the_node_and_is_the_next_sandboxs(
    make_mesh: MeshMaker, tmp_path: Path
) -> None:
    kept = {"mesh_id": f"test-{secrets.token_hex(5)}", "storage_folder": tmp_path / "kept", "storage_limit": 1 << 20}
    async with make_mesh(**kept) as mesh:
        async with boxed(mesh, data="large") as one:
            await shell(one, f"head -c 3000000 /dev/zero > {DATA}/zeros; echo hello > {DATA}/small")
        async with boxed(mesh, data="large") as two:
            assert await shell(two, f"cat {DATA}/small") == "hello\n"
            assert copies(kept)() == ["large"]
            await shell(two, f"rm {DATA}/zeros")
        await none_is_left(kept)
        async with boxed(mesh, data="large") as three:
            assert await shell(three, f"cat {DATA}/small") == "hello\n"
        await none_is_left(kept)
        (piece,) = (tmp_path / "kept").rglob("pieces/*")
        piece.write_bytes(b"damaged")
        with pytest.raises(errors.WorkspaceNotReady, match="damaged"):
            async with boxed(mesh, data="large"):
                pass
        assert copies(kept)() == []


async def test_a_create_that_is_refused_leaves_no_copy(make_mesh: MeshMaker, kept: dict[str, Any]) -> None:
    async with make_mesh(**kept) as mesh:
        async with boxed(mesh, data="here") as one:
            await shell(one, f"echo hello > {DATA}/file")
        await none_is_left(kept)
        with pytest.raises(errors.InvalidArgument, match="own"):
            await BaseSandboxAsync(base_url=mesh.addresses[0], volumes={"/usr/x": "here"}).start()
        for name in ("..", "a/b", "x~"):
            with pytest.raises(errors.InvalidArgument, match="name of a volume"):
                await BaseSandboxAsync(base_url=mesh.addresses[0], volumes={DATA: name}).start()
        await none_is_left(kept)
        assert await asyncio.to_thread(copies(kept)) == []
