"""One version beside another: state of an earlier one, clients of the last two, and services replaced under load.

`python -m tests.faults.versions COMMIT` runs both versions on the same state, `tests.faults.upgrade` under load.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tarfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.faults.versions import MESH_ID, Version, check, check_out, earlier_commits, start_mesh, state_variables
from tests.faults.workload import Workload
from tests.faults.world import open_world

STATES = sorted((Path(__file__).parent / "states").iterdir())


@contextmanager
def no_mesh(version: Version) -> Generator[Path]:
    """Yield the folder of a mesh's state, which is not there before and not after."""
    paths = MeshSettings(mesh_id=MESH_ID).paths
    remove(paths)
    paths.make()
    try:
        yield paths.state
    finally:
        version.run("down")
        remove(paths)


def earlier_versions(folder: Path, variables: dict[str, str]) -> list[Version]:
    commits = earlier_commits()
    if not commits:
        pytest.skip("the clone has no earlier commits (git fetch --unshallow)")
    return [Version(commit, check_out(commit, folder / commit), variables) for commit in commits]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", STATES, ids=lambda path: path.name.partition(".")[0])
def test_state_of_an_earlier_version_is_opened_with_sessions_tokens_workspaces_and_snapshots(
    state: Path, tmp_path: Path
) -> None:
    version = Version("this version", Path(sys.executable), state_variables(tmp_path))
    with no_mesh(version) as place:
        with tarfile.open(state) as tar:
            tar.extractall(tmp_path)  # noqa: S202 - of this repository
        shutil.copytree(tmp_path / "mesh", place, symlinks=True, dirs_exist_ok=True)
        check(version, json.loads((tmp_path / "facts.json").read_text()), start_mesh(version))


@pytest.mark.timeout(300)
def test_clients_of_the_last_two_versions_use_this_mesh_and_this_client_uses_the_last_versions_mesh(
    tmp_path: Path,
) -> None:
    variables = state_variables(tmp_path)
    version = Version("this version", Path(sys.executable), variables)
    earlier = earlier_versions(tmp_path, variables)
    with no_mesh(version):
        address = start_mesh(earlier[0])
        facts = version.client("prepare", address, {}) | {"runs": True}
        version.client("check", address, facts)
        earlier[0].run("down", "--keep")
        address = start_mesh(version)

        def found_by(other: Version) -> object:
            return other.client("check", address, facts)["sandbox_id"]

        with ThreadPoolExecutor() as threads:
            found = [*threads.map(found_by, earlier)]
    assert found == [facts["sandbox_id"]] * len(earlier)


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
