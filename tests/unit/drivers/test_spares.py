"""Sandboxes that are prepared ahead of their create: who gets them, and that none is left."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import WrongState
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver, sweep_state
from sandmeshd.drivers.bubblewrap.spawns import spares
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.node import process_driver
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.paths import MeshPaths
from tests.conformance.conftest import below
from tests.image_roots import busybox_root, write_image
from tests.processes import command_of

from .conftest import request_of

pytestmark = pytest.mark.usefixtures("prepared")
SECONDS = 30
HOARD = """
import errno, os, socket, time
kept = []
while True:
    ours, theirs = socket.socketpair()
    kept += ours, theirs
    ours.setblocking(False)
    try:
        while True:
            socket.send_fds(ours, [b"x"], [0] * 250)
    except BlockingIOError:
        continue
    except OSError as error:
        assert error.errno == errno.ETOOMANYREFS, error
        break
print("refused", flush=True)
time.sleep(1000)
"""


class Prepared:
    """A driver that prepares sandboxes ahead, and what it logs."""

    def __init__(self, driver: Driver, settings: BubblewrapSettings, logged: list[Any]) -> None:
        self.driver = driver
        self.settings = settings
        self.paths = settings.paths
        self._logged = logged

    async def make(self, name: str, **values: Any) -> pb.RuntimeSandbox:
        """Make a sandbox with further values of its spec."""
        request = request_of(self.settings, name)
        request.spec.MergeFrom(sandbox_pb2.SandboxSpec(**values))
        return (await self.driver.create_sandbox(request)).sandbox

    async def spares(self, count: int) -> list[Path]:
        """Return the directories of the spares that wait, once so many have been prepared since the start."""
        await wait_for(lambda: len(self._prepared()) >= count)
        return [path for path in self._prepared() if path.exists()]

    def _prepared(self) -> list[Path]:
        return [Path(line["folder"]) for line in self._logged if line["event"] == "a sandbox waits for its create"]

    def warnings(self) -> list[str]:
        """Return what was warned of."""
        return [line["event"] for line in self._logged if line["log_level"] == "warning"]

    def init(self, name: str) -> int:
        """Return the pid of a sandbox's PID 1."""
        pid = MeshFolders(self.paths).folder(name).status_value("child-pid")
        assert pid is not None
        return pid


async def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(SECONDS):
        while not is_so():  # noqa: ASYNC110 - directories and logs have no event
            await asyncio.sleep(0.005)


def init_of(paths: MeshPaths, spare: Path) -> int:
    """Return the pid of a spare's PID 1."""
    pid = MeshFolders(paths).staged(spare.name.removeprefix(".gone-")).status_value("child-pid")
    assert pid is not None
    return pid


async def processes_of(paths: MeshPaths, spare: Path) -> list[int]:
    """Return a spare's agent and user code's first process: a child of the agent once what forked it has ended."""
    init = init_of(paths, spare)
    await wait_for(lambda: len(below(init)) == 2)
    return below(init)


@asynccontextmanager
async def prepared_driver(paths: MeshPaths, count: int = 1, **values: Any) -> AsyncGenerator[Prepared]:
    """Open a driver that prepares so many sandboxes of each kind."""
    settings = BubblewrapSettings(paths=paths, way="fork", stands_by=True, spares=count, **values)
    with capture_logs() as logged:
        async with open_driver(settings) as driver:
            yield Prepared(driver, settings, logged)


async def test_a_create_takes_the_sandbox_that_waits_and_another_is_prepared(paths: MeshPaths) -> None:
    async with prepared_driver(paths) as mesh:
        (spare,) = await mesh.spares(1)
        waiting = init_of(paths, spare)
        sandbox = await mesh.make("one", environment={"WHO": "one"})
        assert mesh.init("one") == waiting
        assert (await run(sandbox, "echo $WHO; pwd; echo kept > mine; hostname")).stdout.split()[0] == "one"
        assert (MeshFolders(paths).folder("one").workspace / "mine").read_text() == "kept\n"
        (second,) = await mesh.spares(2)
        waiting = init_of(paths, second)
        other = await mesh.make("two", environment={"WHO": "two"})
        assert mesh.init("two") == waiting
        assert (await run(other, "echo $WHO; ls")).stdout == "two\n"
        assert sandbox.agent_token != other.agent_token
        for name in ("one", "two"):
            await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))


async def test_a_spare_is_in_no_list_and_nothing_of_it_is_left_by_its_driver(paths: MeshPaths) -> None:
    async with prepared_driver(paths) as mesh:
        assert await mesh.spares(1)
        listed = await mesh.driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=paths.mesh_id))
        assert list(listed.sandboxes) == []
    assert list(paths.sandboxes.iterdir()) == []
    assert list(paths.agents.iterdir()) == []


async def test_a_sandbox_that_was_a_spare_survives_its_driver(paths: MeshPaths) -> None:
    async with prepared_driver(paths) as mesh:
        await mesh.spares(1)
        made = await mesh.make("one")
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        again = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        assert again.agent_token == made.agent_token
        assert (await run(again, "echo here")).stdout == "here\n"
    await sweep_state(paths)


async def test_a_sandbox_that_was_a_spare_ends_with_a_driver_that_ends_its_sandboxes(paths: MeshPaths) -> None:
    async with prepared_driver(paths, ends_with_driver=True) as mesh:
        await mesh.spares(1)
        await mesh.make("one")
        pid = mesh.init("one")
    assert command_of(pid) == ""
    assert list(paths.sandboxes.iterdir()) == []


@pytest.mark.parametrize("victim", ["its agent", "user code's first process"])
async def test_nothing_of_a_spare_is_left_once_a_process_of_it_was_killed(paths: MeshPaths, victim: str) -> None:
    async with prepared_driver(paths, 2) as mesh:
        for spare in await mesh.spares(2):
            agent, user = await processes_of(paths, spare)
            os.kill(agent if victim == "its agent" else user, signal.SIGKILL)
        await wait_for(lambda: not any((*paths.sandboxes.iterdir(), *paths.agents.iterdir())))
        assert not mesh.warnings()
        # The next create is served, and has others prepared.
        sandbox = await mesh.make("one")
        assert (await run(sandbox, "echo here")).stdout == "here\n"
        await mesh.spares(4)
        await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))


@pytest.mark.parametrize("victim", ["its agent", "user code's first process"])
async def test_a_spare_whose_process_was_killed_just_now_is_not_taken(paths: MeshPaths, victim: str) -> None:
    async with prepared_driver(paths) as mesh:
        (spare,) = await mesh.spares(1)
        agent, user = await processes_of(paths, spare)
        killed = agent if victim == "its agent" else user
        pidfd = os.pidfd_open(killed)
        os.kill(killed, signal.SIGKILL)
        # The driver has no turn meanwhile, so that it has not noticed.
        assert select.select([pidfd], [], [], SECONDS)[0]
        os.close(pidfd)
        sandbox = await mesh.make("one")
        assert mesh.init("one") != agent
        assert (await run(sandbox, "echo here")).stdout == "here\n"
        await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))


@pytest.mark.parametrize("lost", ["folder", "sockets"])
async def test_a_spare_whose_directories_are_gone_is_not_taken(paths: MeshPaths, lost: str) -> None:
    async with prepared_driver(paths) as mesh:
        (spare,) = await mesh.spares(1)
        place = spare if lost == "folder" else paths.agents / spare.name
        place.rename(place.with_name(".gone-else"))
        sandbox = await mesh.make("one")
        assert (await run(sandbox, "echo here")).stdout == "here\n"
        await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))


async def test_what_an_interpreter_reads_at_its_start_is_not_left_to_a_spare(paths: MeshPaths) -> None:
    async with prepared_driver(paths) as mesh:
        (spare,) = await mesh.spares(1)
        sandbox = await mesh.make("one", environment={"LC_ALL": "C"})
        assert spare.exists()
        assert (await run(sandbox, "echo $LC_ALL")).stdout == "C\n"
        await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))


@pytest.mark.needs("control groups")
async def test_a_spare_is_in_the_control_groups_of_its_kind(paths: MeshPaths) -> None:
    limits = sandbox_pb2.Limits(memory_bytes=256 << 20, pids=64)
    async with prepared_driver(paths) as mesh:
        await mesh.spares(1)
        await mesh.make("one", limits=limits)
        spares = await mesh.spares(2)
        waiting = {init_of(paths, spare) for spare in spares}
        two = await mesh.make("two", limits=limits)
        assert mesh.init("two") in waiting
        await run(two, "sleep 100 >/dev/null 2>&1 &")
        groups = [Path(line) for line in MeshFolders(paths).folder("two").groups.read_text().splitlines()]
        assert all(str(mesh.init("two")) in (path / "agent" / "cgroup.procs").read_text().split() for path in groups)
        assert all((path / "user" / "cgroup.procs").read_text() for path in groups)
        for name in ("one", "two"):
            await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))
        assert not any(path.exists() for path in groups)


async def test_no_sandbox_is_prepared_between_creates_that_follow_each_other(
    paths: MeshPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "QUIET_SECONDS", 3600.0)
    async with prepared_driver(paths) as mesh:
        for name in ("one", "two", "three"):
            await mesh.make(name)
            await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))
        assert await mesh.spares(0) == []


async def test_more_sandboxes_than_end_at_a_time_end_with_their_driver(
    paths: MeshPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_driver, "ENDING_AT_ONCE", 2)
    async with prepared_driver(paths, 0, ends_with_driver=True) as mesh:
        names = ("one", "two", "three", "four", "five")
        await asyncio.gather(*map(mesh.make, names))
        pids = [mesh.init(name) for name in names]
    assert [command_of(pid) for pid in pids] == [""] * len(names)
    assert list(paths.sandboxes.iterdir()) == []


async def test_user_code_that_leaves_descriptors_unreceived_stops_no_other_sandbox(paths: MeshPaths) -> None:
    async with prepared_driver(paths, 0) as mesh:
        hoarder = await mesh.make("hoarder")
        said = await run(
            hoarder,
            f"python3 -c '{HOARD}' > said & until grep -q refused said; do sleep 0.1; done 2>/dev/null; cat said",
        )
        assert said.stdout == "refused\n"
        other = await mesh.make("other")
        assert (await run(other, "echo here")).stdout == "here\n"
        assert not mesh.warnings()
        for name in ("hoarder", "other"):
            await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))


async def test_no_sandbox_is_prepared_where_none_is_wanted(paths: MeshPaths) -> None:
    async with prepared_driver(paths, 0) as mesh:
        await mesh.make("one")
        assert [path.name for path in paths.sandboxes.iterdir()] == ["one"]
        await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))


async def test_the_spares_of_a_killed_driver_are_swept_by_the_next(paths: MeshPaths) -> None:
    program = str(Path(__file__).with_name("driver_program.py"))
    arguments = (paths.mesh_id, str(paths.state_root), str(paths.runtime_root), "no", "2")
    killed = await asyncio.create_subprocess_exec(sys.executable, program, *arguments)
    try:
        await wait_for(lambda: len([sandbox for sandbox in MeshFolders(paths).all_staged() if sandbox.is_alive()]) == 2)
    finally:
        killed.kill()
        await killed.wait()
    async with open_driver(BubblewrapSettings(paths=paths)):
        assert MeshFolders(paths).discarded() == []
    await sweep_state(paths)


@pytest.mark.needs("busybox", "uids for sandboxes")
async def test_spares_of_an_image_end_once_it_is_idle_and_release_it(paths: MeshPaths, tmp_path: Path) -> None:
    images = ImageSettings(images=tmp_path / "images")
    store, reference = ImageStore(images, tmp_path), write_image(tmp_path / "layout", busybox_root())
    await store.pull(reference)
    async with prepared_driver(paths, image_store=images, image_idle=1.0) as mesh:
        (plain,) = await mesh.spares(1)
        await mesh.make("one", image=reference)
        await mesh.spares(2)
        await mesh.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
        await wait_for(lambda: list(paths.sandboxes.iterdir()) == [plain])
        async with asyncio.timeout(SECONDS):
            while not await _removed(store, reference):  # noqa: ASYNC110 - a lock has no event
                await asyncio.sleep(0.02)
    assert store.find(reference) is None


async def _removed(store: ImageStore, reference: str) -> bool:
    """Return whether an image could be removed, which a sandbox or spare that has it prevents."""
    try:
        await store.remove(reference)
    except WrongState:
        return False
    return store.find(reference) is None
