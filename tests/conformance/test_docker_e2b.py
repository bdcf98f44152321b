"""Other systems' own clients against a mesh on an engine, by the programs that they run on bubblewrap too."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sandmesh.mesh import MeshAsync
from tests.engine import in_full
from tests.environments import environment_of
from tests.mesh.doors.e2b.e2b_world import World, open_world
from tests.mesh.doors.e2b.test_e2b_clients import CLIENTS, EXAMPLES
from tests.npm import install

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(900)]

PROGRAMS = ("sandbox.py", "interpreter.py", "pauses.py", "templates.py")
IN_FULL = ("newest.py", "volumes.py", "rest.py", "refusals.py")
NAMED = ("hosts.py", "gateway.py", "volumes.py")
"""Those that reach sandboxes by names, and volumes in a storage."""

LAST = ("every call answered", "replies are the same")


async def answers(*program: str, **variables: str) -> None:
    """Run a program to its end."""
    process = await asyncio.create_subprocess_exec(
        *program, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 240)
    said = out.decode()
    assert (process.returncode, any(line in said for line in LAST)) == (0, True), said + err.decode()


async def token_of(world: World, user: str) -> str:
    """Make a user's token."""
    async with MeshAsync(world.mesh.addresses[0]) as client:
        return (await client.tokens.create(user)).secret


async def e2bs(engine: str, tmp_path: Path) -> None:
    """Run the programs of E2B's client for Python."""
    python = str(await asyncio.to_thread(environment_of, *CLIENTS, with_own=False))
    async with open_world(driver="docker", docker_url=engine) as world:
        for name in (*PROGRAMS, *(IN_FULL if in_full() else ())):
            await answers(python, str(EXAMPLES / name), **await of_e2b(world, name))
    if in_full():
        more = {"e2b_domain": "mesh.localhost", "storage_folder": tmp_path / "kept"}
        async with open_world(driver="docker", docker_url=engine, **more) as world:
            for name in NAMED:
                await answers(python, str(EXAMPLES / name), **await of_e2b(world, name))


async def others(engine: str, tmp_path: Path) -> None:
    """Run those of E2B's client for Node, and of the other doors' clients."""
    doors = {"agentscope": True, "swerex": True, "sandboxfusion": True}
    node = tmp_path / "node"
    shutil.copytree(EXAMPLES / "node", node, ignore=shutil.ignore_patterns("node_modules"))
    await asyncio.to_thread(install, node, "npm")
    async with open_world(driver="docker", docker_url=engine, **doors) as world:
        for name in ("sandbox.mjs", "interpreter.mjs", "templates.mjs"):
            await answers("node", str(node / name), **await of_e2b(world, name))
        await of_doors(world)


@pytest.mark.parametrize("programs", [e2bs, others] if in_full() else [e2bs], ids=lambda programs: programs.__name__)
async def test_other_systems_clients_work_on_an_engine_as_they_do_on_bubblewrap(
    programs: Callable[[str, Path], Awaitable[None]], engine: str, tmp_path: Path
) -> None:
    await programs(engine, tmp_path)


async def of_e2b(world: World, name: str) -> dict[str, str]:
    """Return the variables of a program of E2B's clients; the image base has no Node.js."""
    return {**world.mesh.e2b, "WITHOUT_NODE": "1", "E2B_API_KEY": await world.key(name.replace(".", "-"))}


async def of_doors(world: World) -> None:
    """Run the programs of the doors whose clients need an address and a token."""
    folder, url = EXAMPLES.parent, world.url
    python = await asyncio.to_thread(environment_of, "agentscope-runtime==1.1.6.post2")
    token = await token_of(world, "agentscope")
    for name in ("runtime.py", "rest.py"):
        await answers(str(python), str(folder / "agentscope" / name), BASE_URL=url, BEARER_TOKEN=token)
    python = await asyncio.to_thread(environment_of, "swe-rex==1.4.0", "aiohttp")
    token = await token_of(world, "swerex")
    await answers(str(python), str(folder / "swerex" / "runtime.py"), BASE_URL=url, TOKEN=token, TERM="dumb")
    python = await asyncio.to_thread(environment_of, "sandbox-fusion==0.3.7")
    endpoint = url.replace("://", f"://x:{await token_of(world, 'sandboxfusion')}@")
    program = str(folder / "sandboxfusion" / "run.py")
    await answers(str(python), program, ENDPOINT=endpoint, LANGUAGES="python bash perl")
