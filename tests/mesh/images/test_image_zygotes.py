"""Sandboxes whose root is an image, spawned by a zygote."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandmesh import errors
from sandmesh.mesh import MeshAsync
from sandmesh.sandbox.boxes import SandboxAsync
from sandmeshd.agent.userland.core.isolation import IMAGE_IDS
from tests.image_layouts import entry, file_entry, make_tar
from tests.image_roots import busybox_root
from tests.mesh.conftest import MeshMaker
from tests.mesh.images.test_image_roots import mesh_with, run
from tests.ordinary import run_tests, subordinate_home

pytestmark = [pytest.mark.needs("busybox"), pytest.mark.needs("uids for sandboxes")]

MOST_BYTES = 16 << 20
"""What a sandbox may have of memory that it shares with no other: a new interpreter and IPython have 50 MiB."""


async def test_one_zygote_spawns_sandboxes_of_several_images(make_mesh: MeshMaker) -> None:
    layers = busybox_root()
    images: dict[str, Any] = {"plain": (layers, {}), "app": (layers, {"User": "app", "Env": ["LD_LIBRARY_PATH=/lib"]})}
    async with mesh_with(make_mesh, images, SANDMESH_BUBBLEWRAP_WAY="fork") as (mesh, folder):
        address = mesh.addresses[0]
        async with (
            SandboxAsync(base_url=address, image=f"oci:{folder}/plain") as one,
            SandboxAsync(base_url=address, image=f"oci:{folder}/app") as two,
        ):
            where = "import os, random\nget_ipython().profile_dir.location, os.environ['HOME'], random.random()"
            said = [(await box.call_tool("run_ipython_cell", {"code": where})).text for box in (one, two)]
            for text, home in zip(said, ("/root", "/home/app"), strict=True):
                assert text.startswith(f"('{home}/.ipython/profile_default', '{home}', ")
            assert said[0].split()[-1] != said[1].split()[-1], "both draw the same numbers"
            assert "LD_LIBRARY_PATH=/lib" in await run(two, "env")
            async with MeshAsync(address) as client:
                first = int((await client.sandboxes.get(one.sandbox_id)).enforced["host_uid"])
            _check_shares_memory(first)


async def test_an_image_without_a_proper_root_does_not_end_its_zygote(make_mesh: MeshMaker) -> None:
    layers = busybox_root()
    odd = make_tar(file_entry("etc", b"a file"), entry("root", b"0"))
    images: dict[str, Any] = {"plain": (layers, {}), "odd": ((odd,), {}), "lost": (layers, {"User": "nobody-here"})}
    async with mesh_with(make_mesh, images, SANDMESH_BUBBLEWRAP_WAY="auto") as (mesh, folder):
        address = mesh.addresses[0]
        for name, text in (("odd", "its root could not be made"), ("lost", "no user 'nobody-here'")):
            with pytest.raises(errors.SandboxStartFailed, match=text):
                await SandboxAsync(base_url=address, image=f"oci:{folder}/{name}").start()
        async with (
            SandboxAsync(base_url=address, image=f"oci:{folder}/plain") as box,
            MeshAsync(address) as client,
        ):
            first = int((await client.sandboxes.get(box.sandbox_id)).enforced["host_uid"])
            _check_shares_memory(first)


@pytest.mark.needs("root")
async def test_sandboxes_of_a_recent_image_are_prepared_ahead(make_mesh: MeshMaker) -> None:
    layers = busybox_root()
    images: dict[str, Any] = {"plain": (layers, {}), "app": (layers, {"User": "app"})}
    async with mesh_with(make_mesh, images, SANDMESH_BUBBLEWRAP_WAY="fork") as (mesh, folder):
        address = mesh.addresses[0]

        async def created(name: str, user: str, root: bool | None = None) -> bool:
            """Return whether a new sandbox has ids that processes had before."""
            before = {uid for _, uid in _users()}
            async with SandboxAsync(base_url=address, image=f"oci:{folder}/{name}", root=root) as box:
                assert (await run(box, "id -u; ls /etc/mine 2>/dev/null; echo mine > /tmp/mine")).split() == [user]
                async with MeshAsync(address) as client:
                    return int((await client.sandboxes.get(box.sandbox_id)).enforced["host_uid"]) in before

        assert not await created("plain", "0")
        async with asyncio.timeout(60):
            while not await created("plain", "0"):  # noqa: ASYNC110 - what is prepared is in no list
                await asyncio.sleep(0.2)
        # Another image's is not taken for it, nor another user's of the same.
        assert not await created("app", "1234")
        assert not await created("plain", "1000", root=False)


@pytest.mark.needs("root", "uidmap")
def test_all_of_it_holds_for_an_ordinary_user_with_subordinate_ids() -> None:
    with subordinate_home() as home:
        run_tests(home, __file__, "-k", "not ordinary_user")


def _check_shares_memory(first: int) -> None:
    # Only root may look at what other ids have.
    if os.geteuid() == 0:
        own = [_own_bytes(process) for process in _processes(first)]
        assert own, "no process has the sandbox's ids"
        assert sum(own) < MOST_BYTES, "it was not spawned by a zygote"


def _processes(first: int) -> Iterator[Path]:
    """Yield the processes that have ids of a sandbox, by the first of them."""
    return (process for process, uid in _users() if first <= uid < first + IMAGE_IDS)


def _users() -> Iterator[tuple[Path, int]]:
    """Yield all processes, with their uids."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = status.read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield status.parent, next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))


def _own_bytes(process: Path) -> int:
    lines = (process / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))
