"""Frameworks for agents, as they are published, on a mesh: each runs an agent whose model is a script."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from sandmesh import MeshAsync
from tests.mesh.doors.e2b.e2b_world import World, open_world
from tests.mesh.integrations.framework_programs import PROGRAMS, Program, node_packages, run_program
from tests.mesh.integrations.scripted_model import scripted_model
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

# The programs of examples/frameworks and of smolagents have their own tests.
HERE = [program for program in PROGRAMS if program.file.startswith("integrations/")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all programs."""
    async with open_world() as running:
        yield running


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install Node's packages."""
    return node_packages(tmp_path_factory.mktemp("frameworks") / "node")


@pytest.mark.needs("node")
@pytest.mark.parametrize("program", HERE, ids=[Path(program.file).stem for program in HERE])
async def test_an_agent_of_a_framework_answers_with_what_a_sandbox_computed(
    world: World, node: Path, program: Program
) -> None:
    async with scripted_model(tool=program.tool, arguments=program.arguments) as model:
        assert program.answer in await run_program(program, world, model, node)
    # ComputeSDK has no model.
    assert len(model.requests) == (0 if program.framework == "ComputeSDK" else 2)
    async with MeshAsync(world.mesh.addresses[0]) as client:

        async def is_nothing_left() -> bool:
            return not [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use]

        await until(is_nothing_left, 30)


@pytest.mark.needs("node")
async def test_a_strict_program_in_typescript_runs_with_e2bs_client(world: World, node: Path) -> None:
    environment = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": await world.key("typescript")}
    options = ("--strict", "--module", "nodenext", "--target", "es2022", "--skipLibCheck", "--outDir", "made")
    for command in (("node_modules/.bin/tsc", *options, "typescript.mts"), ("node", "made/typescript.mjs")):
        program = await asyncio.create_subprocess_exec(
            *command, cwd=node, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, _ = await asyncio.wait_for(program.communicate(), 150)
        assert program.returncode == 0, said.decode()
    assert said.decode() == "3 kept 9973\nThere are 1229.\n"


@pytest.mark.needs("node")
async def test_computesdks_times_to_the_first_command_are_taken_and_nothing_is_left(world: World, node: Path) -> None:
    environment = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": await world.key("tti")}
    command = ["node", str(node / "computesdk_tti.mjs")]

    async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run, [*command, *arguments], env=environment, capture_output=True, text=True, check=False
        )

    done = await run("3", "50")
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    assert [row[:2] for row in rows] == [[mode, "3 of 3"] for mode in ("sequential", "staggered", "burst")]
    assert all(int(cell) > 0 for row in rows for cell in row[2:])
    async with MeshAsync(world.mesh.addresses[0]) as client:
        assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []
    refused = await run("none")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
