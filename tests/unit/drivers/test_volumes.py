"""Copies of volumes on a node: when they are saved, and what becomes of them after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import AlreadyExists, NotFound
from sandmeshd.drivers.api.volumes import volume_paths
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver
from sandmeshd.drivers.decorators.kept_volumes import VolumeKeeper
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.storage import StorageSettings, StoredFolders, open_folders

pytestmark = [pytest.mark.usefixtures("prepared"), pytest.mark.needs("user namespaces")]

OWNER = "0123456789abcdef"
VOLUME = f"{OWNER}/data"


@dataclass(frozen=True)
class Kept:
    """A driver with its storage, and the copies on the node."""

    keeper: VolumeKeeper
    folders: StoredFolders
    copy: Path
    mesh_id: str

    def request(self, sandbox_id: str, place: str = "/mnt/data") -> pb.CreateSandboxRequest:
        """Return a request for a sandbox with the volume."""
        spec = sandbox_pb2.SandboxSpec(template="base", volumes={place: "data"}, volumes_owner=OWNER)
        return pb.CreateSandboxRequest(sandbox_id=sandbox_id, mesh_id=self.mesh_id, spec=spec)

    async def saved(self, target: Path) -> dict[str, str]:
        """Return what is in the storage, by names."""
        await self.folders.download_folder(f"volumes/{VOLUME}", target)
        return await asyncio.to_thread(lambda: {path.name: path.read_text() for path in target.iterdir()})


@asynccontextmanager
async def opened(paths: MeshPaths, folder: Path) -> AsyncGenerator[Kept]:
    """Open the driver of a mesh, and a storage in a folder."""
    settings = BubblewrapSettings(paths=paths)
    assert settings.volumes_root is not None
    async with (
        open_driver(settings) as driver,
        open_folders(StorageSettings(service="local", folder=folder / "kept")) as folders,
    ):
        keeper = VolumeKeeper(driver, folders, settings.volumes_root, settings.volumes_uid)
        await keeper.adopt(paths.mesh_id)
        yield Kept(keeper, folders, settings.volumes_root / VOLUME, paths.mesh_id)


async def test_a_change_is_saved_while_a_sandbox_has_the_volume(paths: MeshPaths, folder: Path) -> None:
    async with opened(paths, folder) as kept:
        await kept.keeper.create_sandbox(kept.request("one"))
        (kept.copy / "file").write_text("first")
        await kept.keeper.save()
        assert await kept.saved(folder / "a") == {"file": "first"}
        (manifest,) = (folder / "kept").rglob("manifest.json")
        written = manifest.stat().st_ino
        await kept.keeper.save()
        assert manifest.stat().st_ino == written, "nothing changed, and it was saved again"
        (kept.copy / "file").write_text("other")
        await kept.keeper.save()
        assert await kept.saved(folder / "b") == {"file": "other"}
        await kept.keeper.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
        assert not kept.copy.exists()


async def test_a_copy_that_a_killed_driver_left_is_saved_by_the_next_one(paths: MeshPaths, folder: Path) -> None:
    async with opened(paths, folder) as kept:
        kept.copy.mkdir(parents=True)
        (kept.copy / "file").write_text("of before")
        # A restore that was cut off, and a copy that was being removed.
        half = kept.copy.with_name("data~")
        half.mkdir()
        (half / "part").write_text("of a half")
    async with opened(paths, folder) as kept:
        assert not half.exists()
        await kept.keeper.save()
        assert not kept.copy.exists()
        assert await kept.saved(folder / "a") == {"file": "of before"}


async def test_sandboxes_that_run_already_have_their_volumes_after_a_restart(paths: MeshPaths, folder: Path) -> None:
    async with opened(paths, folder) as kept:
        await kept.keeper.create_sandbox(kept.request("one"))
        (kept.copy / "file").write_text("kept")
    async with opened(paths, folder) as kept:
        await kept.keeper.save()
        assert kept.copy.exists()
        await kept.keeper.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
        assert not kept.copy.exists()
        assert await kept.saved(folder / "a") == {"file": "kept"}


async def test_a_create_of_an_id_that_is_taken_leaves_its_sandbox_the_volume(paths: MeshPaths, folder: Path) -> None:
    async with opened(paths, folder) as kept:
        await kept.keeper.create_sandbox(kept.request("one"))
        with pytest.raises(AlreadyExists):
            await kept.keeper.create_sandbox(kept.request("one", "/mnt/elsewhere"))
        assert kept.copy.exists()
        await kept.keeper.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
        assert not kept.copy.exists()
        # Nothing was in it, so that nothing is kept of it.
        with pytest.raises(NotFound):
            await kept.saved(folder / "a")


@pytest.mark.parametrize("owner", ["", "../../etc", "short", "0123456789abcdeg"])
def test_what_cannot_be_an_owner_names_no_directory(owner: str) -> None:
    spec = sandbox_pb2.SandboxSpec(volumes={"/mnt/data": "data"}, volumes_owner=owner)
    assert volume_paths(spec) == []
    named = sandbox_pb2.SandboxSpec(volumes={"/mnt/data": "../data"}, volumes_owner=OWNER)
    assert volume_paths(named) == []
