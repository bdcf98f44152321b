"""E2B's own clients, as they are published, against a mesh: the programs of examples/e2b."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.npm import install
from tests.unit.store.waiting import until

from .e2b_world import World, open_world

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "e2b"
CLIENTS = ("e2b==2.63.0", "e2b-code-interpreter==2.11.5")
SECONDS = 400


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with open_world() as running:
        yield running


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the clients into a directory of their own."""
    target = tmp_path_factory.mktemp("e2b") / "library"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), *CLIENTS]
    subprocess.run(command, check=True, timeout=SECONDS)
    return target


@pytest.mark.parametrize("name", ["sandbox.py", "interpreter.py", "pauses.py", "templates.py", "refusals.py"])
async def test_an_unmodified_client_needs_environment_variables_alone(world: World, library: Path, name: str) -> None:
    environment = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": await world.key(name), "PYTHONPATH": str(library)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / name), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert (process.returncode, out.decode()) == (0, "every call answered\n"), err.decode()


KILLED = """
import asyncio, sys
from e2b import AsyncSandbox

async def make():
    box = await AsyncSandbox.create(timeout=20)
    await box.commands.run("sleep 1000", background=True, timeout=0)
    await box.files.write("mine", "x" * 1000)
    print(box.sandbox_id, flush=True)

async def main():
    await asyncio.gather(*(make() for _ in range(int(sys.argv[1]))))
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_clients_that_are_killed_leave_nothing_once_their_time_is_over(world: World, library: Path) -> None:
    key = await world.key("killed")
    environment = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": key, "PYTHONPATH": str(library)}
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED, "6", env=environment, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(6):
            assert await asyncio.wait_for(process.stdout.readline(), 60)
        process.kill()
        await process.wait()

    async def are_gone() -> bool:
        return bool((await world.send("GET", "/v2/sandboxes", {"X-API-KEY": key}))[1] == [])

    # What a sandbox leaves on the machine is looked for after the mesh's end.
    await until(are_gone, 90)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install Node's clients, as their lock file says, beside a copy of the programs."""
    folder = tmp_path_factory.mktemp("e2b") / "node"
    shutil.copytree(EXAMPLES / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    install(folder, "npm")
    return folder


@pytest.mark.parametrize("name", ["sandbox.mjs", "interpreter.mjs", "templates.mjs"])
async def test_an_unmodified_client_of_node_needs_environment_variables_alone(
    world: World, packages: Path, name: str
) -> None:
    environment = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": await world.key(name.replace(".", "-"))}
    process = await asyncio.create_subprocess_exec(
        "node", str(packages / name), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert (process.returncode, out.decode()) == (0, "every call answered\n"), err.decode()
