"""Snapshots of sandboxes with images, pushed to a registry as images, and started elsewhere."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh import errors
from sandmesh.sandbox.boxes import BaseSandboxAsync
from sandmeshd.cli.images.snapshots import image_of
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.image_layouts import make_image
from tests.image_roots import busybox_root
from tests.mesh.conftest import MeshMaker
from tests.mesh.images.test_image_roots import CHANGES, LOOK, run
from tests.registry import Registry, running_registry

pytestmark = [pytest.mark.needs("busybox", "registry", "root"), pytest.mark.needs("uids for sandboxes")]


@pytest.fixture
def folder() -> Generator[Path]:
    made = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    yield made
    remove_tree(made)


@pytest.fixture
def registry(folder: Path) -> Generator[Registry]:
    (folder / "registry").mkdir()
    with running_registry(folder / "registry") as one:
        yield one


async def test_an_image_of_a_snapshot_starts_elsewhere_with_all_that_was_there(
    make_mesh: MeshMaker, registry: Registry, folder: Path
) -> None:
    base = registry.push(make_image(busybox_root()), "base:1")
    here, elsewhere = (registry.settings(folder / name).model_dump() for name in ("here", "elsewhere"))
    identity = f"test-{secrets.token_hex(5)}"
    async with make_mesh(mesh_id=identity, image_store=here) as mesh:
        async with BaseSandboxAsync(base_url=mesh.addresses[0], image=base) as box:
            await run(box, CHANGES)
            await run(box, "mkdir data; echo 1 > data/one; chown 1234 data/one; echo w > mine")
            snapshot = await box.snapshot()
            await run(box, "echo x > /srv/.wh.deep")
            hidden = await box.snapshot()
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
            plain = await box.snapshot()
        node = MeshPaths(identity, default_state_directory(), default_runtime_directory()).node_state
        store = ImageStore(registry.settings(folder / "here"), folder)
        made = await image_of(store, node, snapshot.snapshot_id)
        pushed = await store.push(made, f"{registry.host}/tools:1")
        await store.remove(made.reference)
        for one, text in ((hidden, "rename it"), (plain, "not one of an image")):
            with pytest.raises(errors.InvalidArgument, match=text):
                await image_of(store, node, one.snapshot_id)
        with pytest.raises(errors.SnapshotNotFound):
            await image_of(store, node, "missing")
    async with make_mesh(image_store=elsewhere) as mesh:
        async with BaseSandboxAsync(base_url=mesh.addresses[0], image=pushed) as box:
            printed = await run(box, f"pwd; stat -c %u data/one; cat data/one; {LOOK}")
            assert printed.split("\n")[:9] == [
                *("/workspace", "1234", "1", "1234 1300 4711", "kept", "w", "secret", "other", "twin"),
            ]
            assert "No such file" in printed
            assert "\n2\n" in printed
            await run(box, "rm -r data; echo new > later")
            again = await box.snapshot()
        async with BaseSandboxAsync(base_url=mesh.addresses[0], snapshot=again) as box:
            assert (await run(box, "ls; cat later mine")).split() == ["later", "mine", "new", "w"]
