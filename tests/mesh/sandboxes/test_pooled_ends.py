"""Sandboxes that die while they wait in a pool: others take their place, and nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal

from benchmarks.meshes import RunningMesh, pool_is_full

from sandmesh import BaseSandboxAsync
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from tests.mesh.conftest import MeshMaker


async def test_nothing_of_a_pooled_sandbox_is_left_once_it_was_killed(make_mesh: MeshMaker) -> None:
    mesh_id = f"test-{secrets.token_hex(5)}"
    folders = MeshFolders(MeshPaths(mesh_id, default_state_directory(), default_runtime_directory()))
    async with asyncio.timeout(120), make_mesh(mesh_id=mesh_id, pools={"base": 1}) as mesh:
        running = RunningMesh(mesh.addresses[0], 0, "", in_docker=False)
        await pool_is_full(running, "base", 1)
        (pooled,) = folders.all()
        init = pooled.status_value("child-pid")
        assert init is not None
        os.kill(init, signal.SIGKILL)
        while pooled.root.exists() or pooled.sockets.exists():  # noqa: ASYNC110 - directories have no event
            await asyncio.sleep(0.01)
        await pool_is_full(running, "base", 1)
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
            assert (await box.run_ipython_cell("6 * 7")).text.strip() == "42"
