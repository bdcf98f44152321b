"""Environments of trainers, as they are published, on a mesh with images: verifiers and SkyRL-Gym."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from sandmesh import MeshAsync
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.environments import environment_of, with_sdk
from tests.image_roots import host_root, python_root, write_image
from tests.mesh.doors.e2b.e2b_world import World, open_world
from tests.mesh.integrations.scripted_model import EXAMPLES
from tests.unit.store.waiting import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.needs("uids for sandboxes"),
]
VERIFIERS = ("verifiers[e2b]==0.4.0",)
SKYRL = ("skyrl-gym==0.4.0",)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run a mesh with an image of this machine's programs and Python."""
    folder = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    (folder / "none").mkdir()
    python, _ = await asyncio.to_thread(python_root, folder / "none")
    path = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    await asyncio.to_thread(write_image, folder / "base", (host_root("wc", "sleep", "sh"), python), Env=[path])
    store = ImageStore(ImageSettings(images=folder / "images"), folder)
    await store.import_image(folder / "base", "tools:1")
    async with open_world(image_store={"images": folder / "images"}) as running:
        yield running
    await asyncio.to_thread(remove_tree, folder)


async def run_example(world: World, tmp_path: Path, name: str, *packages: str, **more: str) -> str:
    """Run a program of `examples/`; return the last line that it prints."""
    python = await asyncio.to_thread(environment_of, *packages)
    key = await world.key(name.replace("_", "-"))
    variables = {**world.mesh.e2b, "E2B_API_KEY": key, "SANDMESH_ADDRESS": world.mesh.addresses[0], **more}
    program = await asyncio.create_subprocess_exec(
        str(python),
        str(EXAMPLES / "integrations" / f"{name}.py"),
        env=with_sdk(tmp_path, HOME=str(tmp_path), **variables),  # verifiers keeps locks in its home
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(program.communicate(), 300)
    assert program.returncode == 0, said.decode()
    async with MeshAsync(world.mesh.addresses[0]) as client:

        async def is_nothing_left() -> bool:
            return not [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use]

        await until(is_nothing_left, 30)
    return said.decode().splitlines()[-1]


async def test_a_rollout_of_verifiers_runs_in_a_sandbox_of_an_image_and_leaves_none(
    world: World, tmp_path: Path
) -> None:
    said = await run_example(world, tmp_path, "verifiers_runtime", *VERIFIERS, IMAGE="tools:1")
    assert said == "a rollout ran"


async def test_an_episode_of_skyrl_is_rewarded_for_what_its_sandbox_computed(world: World, tmp_path: Path) -> None:
    assert await run_example(world, tmp_path, "skyrl_environment", *SKYRL) == "the reward is 1.0"
