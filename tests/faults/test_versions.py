"""One version after the other: state of an earlier one, and services that are replaced one by one under load.

`python -m tests.faults.versions COMMIT` runs both versions and their clients with each other's meshes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tarfile
from pathlib import Path

import pytest

from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.faults.versions import MESH_ID, Version, check, state_variables
from tests.faults.workload import Workload
from tests.faults.world import open_world

STATES = sorted((Path(__file__).parent / "states").iterdir())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", STATES, ids=lambda path: path.name.partition(".")[0])
def test_state_of_an_earlier_version_is_opened_with_sessions_tokens_workspaces_and_snapshots(
    state: Path, tmp_path: Path
) -> None:
    paths = MeshSettings(mesh_id=MESH_ID).paths
    version = Version("this version", Path(sys.executable), state_variables(tmp_path))
    remove(paths)
    paths.make()
    try:
        with tarfile.open(state) as tar:
            tar.extractall(tmp_path)  # noqa: S202 - of this repository
        shutil.copytree(tmp_path / "mesh", paths.state, symlinks=True, dirs_exist_ok=True)
        address = json.loads(version.run("up", "-d", "-o", "json"))["addresses"][0]
        check(version, json.loads((tmp_path / "facts.json").read_text()), address)
    finally:
        version.run("down")
        remove(paths)


@pytest.mark.timeout(300)
async def test_services_that_are_restarted_one_by_one_under_load_fail_no_call(tmp_path: Path) -> None:
    # A driver of a busy machine takes longer to start than the default allows for.
    patient = {"SANDMESH_DRIVER_RETURN_SECONDS": "25"}
    async with open_world(tmp_path, count=2, environment=patient) as world:
        work, calm = Workload(world.addresses, lines=200), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work.run(4, 1 << 40, until=calm))
            for name in world.programs:
                done = len(work.account.cycles)
                await world.programs[name].kill(signal.SIGTERM)
                await world.programs[name].start()
                while len(work.account.cycles) < done + 4:  # noqa: ASYNC110 - cycles tell nobody
                    await asyncio.sleep(0.05)
            calm.set()
        assert [cycle for cycle in work.account.cycles if cycle.error] == []
        assert work.account.wrong == []
