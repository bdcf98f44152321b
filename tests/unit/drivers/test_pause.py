"""How the bubblewrap driver pauses: what stands still, what outlives its driver, and what ends all the same."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandboxLost, SandboxNotFound, WrongState
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver, sweep_state
from sandmeshd.drivers.bubblewrap.cgroups.files import mounts, own_groups
from sandmeshd.drivers.bubblewrap.pause import pause, resume
from sandmeshd.drivers.bubblewrap.pause_memory import give_back
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.node.processes import find
from sandmeshd.drivers.node.records import Folder, MeshFolders
from sandmeshd.runtime.paths import MeshPaths
from tests.conformance.conftest import below
from tests.unit.store.waiting import until

from .conftest import request_of
from .test_driver import start_driver

pytestmark = pytest.mark.usefixtures("prepared")

COUNTING = "(while :; do echo >>$HOME/count; done) </dev/null >/dev/null 2>&1 &"
FORKING = "(while :; do (true); done) </dev/null >/dev/null 2>&1 &"


WAITS = """
import os
os.mkfifo("fifo")
print("ready", flush=True)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "fifo", os.O_RDONLY, 0)])
open("spawned", "w").close()
"""
"""Waits in the system, until its child, which shares its memory, has opened a FIFO: no signal stops it there."""


async def _pause(driver: Driver) -> None:
    await driver.pause_sandbox(pb.PauseSandboxRequest(sandbox_id="one"))


async def _resume(driver: Driver) -> None:
    await driver.resume_sandbox(pb.ResumeSandboxRequest(sandbox_id="one"))


async def _state(driver: Driver) -> str:
    answer = await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id="one"))
    return pb.RuntimeState.Name(answer.sandbox.state)


def _states(folder: Folder) -> set[str]:
    """Return the states of a sandbox's processes as the kernel has them."""
    states: set[str] = set()
    for pid in _processes(folder):
        with suppress(OSError):
            states.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    return states


def _processes(folder: Folder) -> list[int]:
    init = folder.status_value("child-pid")
    assert init is not None
    return below(init)


async def test_every_process_stands_still_also_of_a_program_that_forks_all_the_time(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    folder = MeshFolders(paths).folder("one")
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        await run(made, FORKING * 3)
        for _ in range(5):
            await _pause(driver)
            assert len(_processes(folder)) > 3
            assert _states(folder) <= {"T", "Z"}
            await _resume(driver)
        assert (await run(made, "echo here")).stdout == "here\n"


@pytest.mark.needs("control groups")
async def test_a_pause_returns_file_cache_and_reports_what_a_sandbox_holds(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    bounded, pause_request = request_of(settings, "one"), pb.PauseSandboxRequest(sandbox_id="one")
    bounded.spec.limits.memory_bytes = 256 << 20
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(bounded)).sandbox
        await run(made, "head -c 60000000 /dev/urandom >big; sync")
        memory = (await driver.pause_sandbox(pause_request)).memory
        assert memory.after_bytes <= memory.before_bytes - 50_000_000
        assert "file cache goes back" in memory.note or "file cache and swappable memory go back" in memory.note
        await _resume(driver)
        assert (await run(made, "wc -c <big")).stdout.strip() == "60000000"


async def test_a_pause_without_a_control_group_of_memory_says_that_nothing_goes_back(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        held = "exec python3 -c 'import time; held = bytearray(64 << 20); print(1, flush=True); time.sleep(1000)'"
        await run(made, f"({held}) </dev/null >$HOME/out 2>/dev/null & until [ -s $HOME/out ]; do sleep 0.05; done")
        memory = (await driver.pause_sandbox(pb.PauseSandboxRequest(sandbox_id="one"))).memory
        assert memory.note.startswith("by the processes' mappings; nothing goes back: it has no control group")
        assert 64 << 20 < memory.after_bytes < 200 << 20
        await _resume(driver)
        ended = pb.PauseSandboxRequest(sandbox_id="one", mode=sandbox_pb2.PAUSE_MODE_FILES)
        memory = (await driver.pause_sandbox(ended)).memory
        assert memory.before_bytes - memory.after_bytes > 64 << 20
        assert "its processes ended" in memory.note


async def test_memory_of_a_group_of_version_2_is_reclaimed_in_steps_and_its_limit_of_swap_returns(
    tmp_path: Path,
) -> None:
    # The files of such a group, since few machines have both versions.
    inner = tmp_path / "user"
    inner.mkdir()
    (tmp_path / "memory.current").write_text(str(100 << 20))
    (inner / "memory.swap.max").write_text("0\n")
    (tmp_path / "memory.reclaim").write_text("")
    note = await give_back([tmp_path])
    assert "go back" in note or "goes back" in note
    assert (tmp_path / "memory.reclaim").read_text() == str(36 << 20)
    assert (inner / "memory.swap.max").read_text() == "0"


async def test_what_a_user_had_stopped_stays_stopped(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        await run(made, "sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >/tmp/pid; kill -STOP $!; sleep 0.2")
        await _pause(driver)
        await _resume(driver)
        found = await run(made, "ps -o s= -p $(cat /tmp/pid) || cut -d' ' -f3 /proc/$(cat /tmp/pid)/stat")
        assert found.stdout.strip() == "T"


async def test_a_paused_sandbox_is_adopted_as_paused_and_goes_on_where_it_was(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        await run(made, "echo kept >/tmp/kept")
        await _pause(driver)
    async with open_driver(settings) as driver:
        assert await _state(driver) == "RUNTIME_STATE_PAUSED"
        again = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        assert again.state == pb.RUNTIME_STATE_PAUSED
        with pytest.raises(WrongState, match="paused"):
            await driver.snapshot_sandbox(pb.SnapshotSandboxRequest(sandbox_id="one", snapshot_id="s"))
        await _resume(driver)
        assert (await run(made, "cat /tmp/kept")).stdout == "kept\n"


async def test_a_pause_that_a_killed_driver_began_is_finished_by_the_next(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    folder = MeshFolders(paths).folder("one")
    async with open_driver(settings) as driver:
        await driver.create_sandbox(request_of(settings, "one"))
    (folder.root / "paused").write_text("[]")
    async with open_driver(settings) as driver:
        assert _states(folder) <= {"T", "Z"}
        await _resume(driver)
        assert await _state(driver) == "RUNTIME_STATE_RUNNING"


async def test_a_paused_sandbox_ends_with_its_private_driver_that_is_killed(paths: MeshPaths) -> None:
    folder = MeshFolders(paths).folder("one")
    with start_driver(paths, "yes") as program:
        processes = find(folder)
        assert processes is not None
        await pause(folder)
        program.kill()
        try:
            async with asyncio.timeout(10):
                await processes.ended()
        finally:
            processes.close()


async def test_a_paused_sandbox_of_a_dead_mesh_is_swept(paths: MeshPaths) -> None:
    folder = MeshFolders(paths).folder("one")
    with start_driver(paths, "no") as program:
        await pause(folder)
        program.kill()
    assert folder.is_alive()
    await sweep_state(paths)
    assert not folder.is_alive()
    assert list(paths.sandboxes.iterdir()) == []


async def test_what_ended_or_never_was_cannot_be_paused(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    folder = MeshFolders(paths).folder("one")
    async with open_driver(settings) as driver:
        with pytest.raises(SandboxNotFound):
            await _pause(driver)
        await driver.create_sandbox(request_of(settings, "one"))
        processes = find(folder)
        assert processes is not None
        processes.kill()
        await processes.ended()
        processes.close()
        with pytest.raises(SandboxLost):
            await _pause(driver)


async def test_a_program_that_waits_in_the_system_is_paused_and_goes_on(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        await run(made, f"cat >waits.py <<'END'\n{WAITS}\nEND\n{COUNTING}")
        await run(made, "(python3 waits.py >log 2>&1 &); until grep -q ready log; do sleep 0.05; done; sleep 0.3")
        await _pause(driver)
        assert await _state(driver) == "RUNTIME_STATE_PAUSED"
        assert "D" in _states(MeshFolders(paths).folder("one"))
        await _resume(driver)
        assert (await run(made, "[ ! -e spawned ] && : >fifo")).exit_code == 0
        assert (await run(made, "until [ -e spawned ]; do sleep 0.05; done")).exit_code == 0


async def test_a_group_that_does_not_freeze_is_no_pause_and_all_goes_on(paths: MeshPaths, tmp_path: Path) -> None:
    settings = BubblewrapSettings(paths=paths)
    folder = MeshFolders(paths).folder("one")
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        groups = folder.groups.read_text() if folder.groups.exists() else None
        (tmp_path / "cgroup.freeze").write_text("0")
        (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
        folder.groups.write_text(f"{tmp_path}\n")
        with pytest.raises(WrongState, match=r"one is not paused, as .* did not stand still in 5 s") as caught:
            await pause(folder)
        assert caught.value.facts == {"state": "READY"}
        assert (tmp_path / "cgroup.freeze").read_text() == "0"
        folder.groups.write_text(groups) if groups is not None else folder.groups.unlink()
        assert await _state(driver) == "RUNTIME_STATE_RUNNING"
        assert (await run(made, "echo here")).stdout == "here\n"


@pytest.fixture
def group() -> Iterator[Path]:
    """Give a control group of version 2 with a group inside, where this machine has them."""
    place = next((mount.place(own_groups().get("", "/")) for mount in mounts("cgroup2")), Path("/nonexistent"))
    made = place / f"sandmesh-test-{secrets.token_hex(5)}"
    try:
        (made / "user").mkdir(parents=True)
    except OSError:
        pytest.skip("no control group of version 2 can be made here")
    yield made
    (made / "user").rmdir()
    made.rmdir()


async def test_a_group_of_version_2_freezes_its_sandbox(paths: MeshPaths, group: Path) -> None:
    settings = BubblewrapSettings(paths=paths)
    folder = MeshFolders(paths).folder("one")
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        await run(made, COUNTING)
        for pid in _processes(folder):
            with suppress(ProcessLookupError):
                (group / "user" / "cgroup.procs").write_text(str(pid))
        folder.groups.write_text(f"{group}\n")
        await pause(folder)
        assert "frozen 1" in (group / "cgroup.events").read_text()
        assert "T" not in _states(folder)
        await resume(folder)
        assert (await run(made, "echo here")).stdout == "here\n"
        await pause(folder)
        folder.groups.unlink()
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
        await until(lambda: _empty(group / "user"))
    assert list(paths.sandboxes.iterdir()) == []


async def _empty(group: Path) -> bool:
    return (group / "cgroup.procs").read_text() == ""
