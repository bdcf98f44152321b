"""What the bubblewrap driver does beside the conformance suite: private meshes, kills, what is half done."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import InvalidArgument, SandboxStartFailed, WrongState
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver, sweep_state
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.drivers.node.builds import MARK
from sandmeshd.drivers.node.processes import find
from sandmeshd.drivers.node.records import Folder, MeshFolders, SpecRecord, read_record
from sandmeshd.runtime.paths import MeshPaths

from .conftest import request_of

pytestmark = pytest.mark.usefixtures("prepared")
PROGRAM = Path(__file__).with_name("driver_program.py")


def start_driver(paths: MeshPaths, ends: str) -> subprocess.Popen[bytes]:
    arguments = [paths.mesh_id, str(paths.state_root), str(paths.runtime_root), ends]
    started = subprocess.Popen(
        [sys.executable, str(PROGRAM), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert started.stderr is not None
    assert started.stderr.readline() == b"made\n", started.stderr.read().decode()
    return started


def _one(paths: MeshPaths) -> Folder:
    return MeshFolders(paths).folder("one")


async def _kill_with(paths: MeshPaths, ends: str) -> None:
    with start_driver(paths, ends) as program:
        processes = find(_one(paths))
        assert processes is not None
        program.send_signal(signal.SIGKILL)
        try:
            if ends == "yes":
                async with asyncio.timeout(10):
                    await processes.ended()
        finally:
            processes.close()


async def test_sandboxes_end_with_a_private_meshs_driver_that_is_killed(paths: MeshPaths) -> None:
    await _kill_with(paths, "yes")
    assert not _one(paths).is_alive()
    await sweep_state(paths)
    assert list(paths.sandboxes.iterdir()) == []
    assert list(paths.agents.iterdir()) == []


async def test_sandboxes_survive_a_kept_meshs_driver_that_is_killed(paths: MeshPaths) -> None:
    await _kill_with(paths, "no")
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        assert made.state == pb.RUNTIME_STATE_RUNNING
        assert (await run(made, "echo here")).stdout == "here\n"


async def test_a_living_sandbox_of_a_dead_mesh_is_swept(paths: MeshPaths) -> None:
    await _kill_with(paths, "no")
    assert _one(paths).is_alive()
    await sweep_state(paths)
    assert list(paths.sandboxes.iterdir()) == []
    assert list(paths.agents.iterdir()) == []


async def test_sandboxes_are_deleted_when_a_private_meshs_driver_closes(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths, ends_with_driver=True)
    async with open_driver(settings) as driver:
        for name in ("one", "two"):
            await driver.create_sandbox(request_of(settings, name))
    assert list(paths.sandboxes.iterdir()) == []


async def test_what_a_killed_driver_half_made_is_made_again(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        first = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        record = read_record(_one(paths))
        assert record is not None
        record.sandbox.state = pb.RUNTIME_STATE_STARTING
        SpecRecord(record.sandbox, 0).write(_one(paths))
        second = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        assert second.agent_token != first.agent_token
        assert (await run(second, "echo here")).stdout == "here\n"


async def test_a_folder_without_a_record_is_listed_as_ended_and_can_be_deleted(paths: MeshPaths) -> None:
    _one(paths).root.mkdir()
    async with open_driver(BubblewrapSettings(paths=paths)) as driver:
        listed = (await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=paths.mesh_id))).sandboxes
        assert [(one.sandbox_id, one.state) for one in listed] == [("one", pb.RUNTIME_STATE_ENDED)]
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
    assert not _one(paths).is_there()


async def test_a_removal_that_was_begun_is_finished_by_the_next_driver(paths: MeshPaths) -> None:
    (paths.sandboxes / ".gone-0123" / "workspace").mkdir(parents=True)
    async with open_driver(BubblewrapSettings(paths=paths)):
        assert list(paths.sandboxes.iterdir()) == []


async def test_an_agent_that_does_not_come_up_in_time_is_a_failed_start(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths, start_timeout=0.001)
    async with open_driver(settings) as driver:
        with pytest.raises(SandboxStartFailed, match=r"0\.001 s"):
            await driver.create_sandbox(request_of(settings, "one"))
        assert not _one(paths).is_there()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; sys.exit('no such luck')", "no such luck"),
        ("""import os, sys; os.write(int(sys.argv[-1]), b'{"error": "no socket"}' + bytes([10]))""", "no socket"),
        ("import os, sys; os.write(int(sys.argv[-1]), b'nonsense')", "its agent ended immediately"),
    ],
    ids=["it writes and ends", "it says why", "it says nonsense"],
)
async def test_a_failed_start_has_its_last_words(
    paths: MeshPaths, own_paths: MeshPaths, program: str, words: str
) -> None:
    _borrow_environments(paths, own_paths)
    _write_agent(own_paths, program)
    settings = BubblewrapSettings(paths=own_paths)
    async with open_driver(settings) as driver:
        with pytest.raises(SandboxStartFailed) as caught:
            await driver.create_sandbox(request_of(settings, "one"))
    assert words in caught.value.facts["detail"]
    assert not _one(own_paths).is_there()


def _borrow_environments(paths: MeshPaths, own_paths: MeshPaths) -> None:
    (own_paths.cache / "environments").mkdir()
    for built in (paths.cache / "environments").glob("[0-9a-f]*"):
        (own_paths.cache / "environments" / built.name).symlink_to(built)


def _write_agent(paths: MeshPaths, program: str) -> None:
    tree = AgentTree(paths.cache)
    tree.site.mkdir(parents=True)
    (tree.site / "__main__.py").write_text(program)
    tree.mcp.mkdir(parents=True)
    for built in (tree.path, tree.mcp.parent):
        (built / MARK).touch()


async def test_environment_variables_over_the_bound_are_refused(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    request = request_of(settings, "one")
    request.spec.environment["LARGE"] = "x" * (1 << 20)
    async with open_driver(settings) as driver:
        with pytest.raises(InvalidArgument, match="1 MiB"):
            await driver.create_sandbox(request)
    assert not _one(paths).is_there()


async def test_environment_variables_larger_than_a_pipe_arrive(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    request = request_of(settings, "one")
    request.spec.environment.update({f"V{number}": "x" * 50_000 for number in range(6)})
    async with open_driver(settings) as driver:
        sandbox = (await driver.create_sandbox(request)).sandbox
        assert (await run(sandbox, "echo ${#V0}${#V5}")).stdout == "5000050000\n"


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
async def test_names_that_no_variable_can_have_are_refused(paths: MeshPaths, name: str) -> None:
    settings = BubblewrapSettings(paths=paths)
    request = request_of(settings, "one")
    request.spec.environment[name] = "1"
    async with open_driver(settings) as driver:
        with pytest.raises(InvalidArgument, match="environment"):
            await driver.create_sandbox(request)


async def test_a_request_for_another_mesh_is_refused(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    request = request_of(settings, "one")
    request.mesh_id = "other"
    async with open_driver(settings) as driver:
        with pytest.raises(InvalidArgument, match="mesh"):
            await driver.create_sandbox(request)


async def test_a_create_with_an_empty_cache_names_the_preparation(own_paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=own_paths)
    async with open_driver(settings) as driver:
        with pytest.raises(WrongState, match="prepare it first"):
            await driver.create_sandbox(request_of(settings, "one"))
    assert not _one(own_paths).is_there()


async def test_specs_and_tokens_are_for_the_mesh_alone(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        sandbox = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
    folder = _one(paths)
    assert folder.spec.stat().st_mode & 0o077 == 0
    assert folder.workspace.stat().st_uid == int(sandbox.enforced["host_uid"]) != 0
    assert folder.spec.stat().st_uid == os.geteuid()
