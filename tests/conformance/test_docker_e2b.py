"""E2B's own clients against a mesh on an engine, by the programs that they run on bubblewrap too."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from tests.environments import environment_of
from tests.mesh.e2b_world import open_world
from tests.mesh.test_e2b_clients import CLIENTS, EXAMPLES

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]


async def test_e2bs_clients_work_on_an_engine_as_they_do_on_bubblewrap(engine: str) -> None:
    python = await asyncio.to_thread(environment_of, *CLIENTS, with_own=False)
    async with open_world(driver="docker", docker_url=engine) as world:
        for name in ("sandbox.py", "interpreter.py", "pauses.py", "templates.py"):
            # The image base has no Node.js.
            own = {"E2B_API_KEY": await world.key(name.replace(".", "-")), "WITHOUT_NODE": "1"}
            process = await asyncio.create_subprocess_exec(
                *(str(python), str(EXAMPLES / name)),
                env={**os.environ, **world.mesh.e2b, **own},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            out, err = await asyncio.wait_for(process.communicate(), 240)
            assert (process.returncode, out.decode().splitlines()[-1:]) == (0, ["every call answered"]), err.decode()
