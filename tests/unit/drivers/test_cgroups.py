"""Control groups of sandboxes: what holds in them, and that none is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InternalError
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import AGENT, USER, Group, GroupLimits, Groups, remove_groups
from sandmeshd.drivers.bubblewrap.cgroups.files import Mount, number
from sandmeshd.drivers.bubblewrap.cgroups.v1 import VersionOne, quota_and_period
from sandmeshd.drivers.bubblewrap.cgroups.v2 import VersionTwo
from sandmeshd.drivers.conformance.inside import run, run_cell
from sandmeshd.drivers.node.records import Folder, MeshFolders
from sandmeshd.runtime.paths import MeshPaths
from tests.processes import command_of

from .conftest import request_of

pytestmark = pytest.mark.needs("control groups")
SPIN = "python3 -c 'import time; end = time.process_time() + 0.05\nwhile time.process_time() < end: pass'"


@pytest.fixture
def groups(paths: MeshPaths) -> Groups:
    """Return what a mesh of its own can do with control groups."""
    return Groups(paths, (VersionTwo(), VersionOne()))


@pytest.fixture
async def driver(paths: MeshPaths, prepared: None) -> AsyncGenerator[Driver]:
    """Yield a driver whose sandboxes end with it."""
    async with open_driver(BubblewrapSettings(paths=paths, ends_with_driver=True)) as opened:
        yield opened


async def make(driver: Driver, paths: MeshPaths, **limits: int) -> pb.RuntimeSandbox:
    """Make the sandbox `one` with limits."""
    request = request_of(BubblewrapSettings(paths=paths), "one")
    request.spec.limits.CopyFrom(sandbox_pb2.Limits(**limits))
    return (await driver.create_sandbox(request)).sandbox


def folders_of(paths: MeshPaths) -> list[Path]:
    """Return the directories of the groups of the sandbox `one`, as its folder names them."""
    return [Path(line) for line in MeshFolders(paths).folder("one").groups.read_text().splitlines()]


def group_of(groups: Groups, paths: MeshPaths) -> Group:
    """Return the groups of the sandbox `one`."""
    found = groups.find(MeshFolders(paths).folder("one"))
    assert found is not None
    return found


def members(path: Path) -> set[str]:
    """Return what runs in a group, by its command line; what ends meanwhile has none."""
    pids = (path / "cgroup.procs").read_text().split()
    return {command_of(pid).replace("\0", " ") for pid in pids} - {""}


def sleep(entered: list[str]) -> subprocess.Popen[bytes]:
    """Start a process that does nothing, as a command line's start has it."""
    return subprocess.Popen([*entered, "/bin/sleep", "1000"])


async def test_user_code_is_in_one_group_and_the_agent_in_another(driver: Driver, paths: MeshPaths) -> None:
    sandbox = await make(driver, paths, memory_bytes=64 << 20, cpu_millis=500, pids=64)
    await run_cell(sandbox, "import subprocess; subprocess.Popen(['sleep', '100'])")
    init = str(MeshFolders(paths).folder("one").status_value("child-pid"))
    for path in folders_of(paths):
        user, agent = members(path / USER), members(path / AGENT)
        assert "sleep 100 " in user
        assert len(user) == 2
        assert agent
        assert not any("sleep" in line for line in agent)
        assert init in (path / AGENT / "cgroup.procs").read_text().split()


async def test_a_quota_throttles_by_the_kernels_own_count(driver: Driver, paths: MeshPaths, groups: Groups) -> None:
    sandbox = await make(driver, paths, cpu_millis=100)
    before = group_of(groups, paths).usage().throttled_periods
    await run(sandbox, SPIN)
    assert group_of(groups, paths).usage().throttled_periods > before


async def test_usage_is_that_of_user_code(driver: Driver, paths: MeshPaths, groups: Groups) -> None:
    sandbox = await make(driver, paths, memory_bytes=64 << 20, pids=64)
    await run(sandbox, "python3 -c 'import time; held = bytearray(20 << 20); print(1, flush=True); time.sleep(9)' &")
    await run(sandbox, "until test -e /tmp/held; do head -c 20000000 /dev/zero > /tmp/held; done")
    usage = group_of(groups, paths).usage()
    assert 20_000_000 < usage.memory_bytes <= 64 << 20
    assert 2 <= usage.processes < 64
    assert usage.out_of_memory_kills == 0
    await run(sandbox, "python3 -c 'bytearray(200 << 20)'")
    assert group_of(groups, paths).usage().out_of_memory_kills > 0


async def test_a_deleted_sandbox_leaves_no_group(driver: Driver, paths: MeshPaths) -> None:
    sandbox = await make(driver, paths, memory_bytes=64 << 20, cpu_millis=500, pids=64)
    await run(sandbox, "sleep 100 >/dev/null 2>&1 &")
    made = folders_of(paths)
    assert all(path.is_dir() for path in made)
    await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
    assert not any(path.exists() for path in made)


async def test_a_sandbox_without_such_limits_has_no_group(driver: Driver, paths: MeshPaths) -> None:
    sandbox = await make(driver, paths)
    assert not MeshFolders(paths).folder("one").groups.exists()
    assert sandbox.enforced["memory"] == "no"
    assert sandbox.enforced["pids"] == "rlimit"


async def test_a_create_that_fails_leaves_no_group(paths: MeshPaths, prepared: None, groups: Groups) -> None:
    async with open_driver(BubblewrapSettings(paths=paths, start_timeout=0.001)) as driver:
        with pytest.raises(Exception, match="did not listen"):
            await make(driver, paths, memory_bytes=64 << 20)
    assert groups.find(MeshFolders(paths).folder("one")) is None


async def test_the_groups_of_a_killed_driver_are_swept_by_the_next(
    driver: Driver, paths: MeshPaths, groups: Groups
) -> None:
    folder = Folder("orphan", paths.sandboxes / "orphan", paths.agents / "x")
    folder.root.mkdir()
    group = groups.make(folder, GroupLimits(memory_bytes=64 << 20))
    assert group is not None
    sleeping = sleep(group.join_command())
    folder.groups.unlink()
    folder.root.rmdir()
    async with open_driver(BubblewrapSettings(paths=paths)):
        assert not any(path.exists() for path in group.folders.values())
    assert sleeping.wait(10) == -9


async def test_groups_of_living_sandboxes_are_not_swept(driver: Driver, paths: MeshPaths, groups: Groups) -> None:
    sandbox = await make(driver, paths, memory_bytes=64 << 20)
    async with open_driver(BubblewrapSettings(paths=paths)):
        assert groups.find(MeshFolders(paths).folder("one")) is not None
    assert (await run(sandbox, "echo alive")).stdout == "alive\n"


async def test_groups_are_removed_wherever_their_folder_says_they_are(paths: MeshPaths, groups: Groups) -> None:
    folder = MeshFolders(paths).folder("moved")
    folder.root.mkdir()
    group = groups.make(folder, GroupLimits(pids=10))
    assert group is not None
    other = Groups(MeshPaths("other", paths.state_root, paths.runtime_root), (VersionTwo(), VersionOne()))
    assert other.find(folder) is None
    await remove_groups(folder)
    assert not any(path.exists() for path in group.folders.values())


async def test_a_process_that_joins_is_below_the_agents_limit(paths: MeshPaths, groups: Groups) -> None:
    folder = MeshFolders(paths).folder("joined")
    folder.root.mkdir()
    group = groups.make(folder, GroupLimits(memory_bytes=64 << 20))
    assert group is not None
    sleeping = sleep([])
    group.join(sleeping.pid)
    assert (group.folders["memory"] / AGENT / "cgroup.procs").read_text().split() == [str(sleeping.pid)]
    await remove_groups(folder)
    assert sleeping.wait(10) == -9
    with pytest.raises(InternalError, match="could not be put"):
        group.join(os.getpid())


def test_what_the_machine_refuses_is_a_missing_capability(paths: MeshPaths, groups: Groups) -> None:
    folder = MeshFolders(paths).folder("large")
    folder.root.mkdir()
    with pytest.raises(CapabilityMissing, match="pids"):
        groups.make(folder, GroupLimits(pids=1 << 30))
    asyncio.run(remove_groups(folder))


@pytest.mark.parametrize("hierarchy", [VersionOne(), VersionTwo()], ids=["v1", "v2"])
def test_each_limit_is_written_to_a_file_of_its_controller(hierarchy: VersionOne | VersionTwo) -> None:
    assert list(hierarchy.settings(GroupLimits())) == []
    written = list(hierarchy.settings(GroupLimits(1 << 26, 250, 9)))
    assert {controller for controller, _, _ in written} == {"memory", "cpu", "pids"}
    assert all(file.startswith(f"{controller}.") for controller, file, _ in written)
    assert ("pids", "pids.max", "9") in written


def test_a_tiny_share_of_a_processor_has_a_longer_period() -> None:
    assert quota_and_period(1500) == (150_000, 100_000)
    assert quota_and_period(10) == (1_000, 100_000)
    assert quota_and_period(1) == (1_000, 1_000_000)


def test_a_container_sees_its_part_of_the_tree() -> None:
    mount = Mount(Path("/sys/fs/cgroup/memory"), "/docker/abc", frozenset({"memory"}))
    assert mount.place("/docker/abc/inner") == Path("/sys/fs/cgroup/memory/inner")
    assert mount.place("/docker/abc") == Path("/sys/fs/cgroup/memory")
    assert mount.place("/") == Path("/sys/fs/cgroup/memory")


def test_numbers_are_read_by_key(tmp_path: Path) -> None:
    file = tmp_path / "memory.events"
    file.write_text("oom 3\noom_kill 2\noom_group_kill 0\n")
    assert number(file, "oom_kill") == 2
    assert number(file, "absent") == 0
    assert number(tmp_path / "absent") == 0


def test_more_processes_than_this_user_may_have_are_refused(paths: MeshPaths) -> None:
    asks = """
import resource, sys
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.bubblewrap.requirements import check
resource.setrlimit(resource.RLIMIT_NPROC, (3000, 3000))
for pids in (3000, 3001):
    limits = sandbox_pb2.Limits(pids=pids)
    try:
        check(pb.CreateSandboxRequest(spec=sandbox_pb2.SandboxSpec(limits=limits)), {})
        print("taken")
    except CapabilityMissing as error:
        print(error.facts["needs"])
"""
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["taken", "pids (at most 3000 here)"]
