"""Starts by zygotes: what killed zygotes and drivers leave, and what sandboxes of one zygote do not share."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from benchmarks.meshes import processes_below

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import CapabilityMissing, SandboxStartFailed
from sandmeshd.agentlink.calls import AgentCall
from sandmeshd.agentlink.connection import open_link
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver, sweep_state
from sandmeshd.drivers.bubblewrap.pipes import open_pipe
from sandmeshd.drivers.bubblewrap.spawns.spawn import Spawn
from sandmeshd.drivers.bubblewrap.starts.zygotes import RunningZygote, ZygoteGone
from sandmeshd.drivers.conformance.inside import evaluate, run
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.processes.child_process import readable
from sandmeshd.templates import load_templates

from .conftest import request_of

pytestmark = pytest.mark.usefixtures("prepared")


def _settings(paths: MeshPaths, **changed: Any) -> BubblewrapSettings:
    return BubblewrapSettings(paths=paths, way="fork", **changed)


async def _make(driver: Driver, settings: BubblewrapSettings, name: str, **variables: str) -> pb.RuntimeSandbox:
    request = request_of(settings, name)
    request.spec.environment.update(variables)
    return (await driver.create_sandbox(request)).sandbox


async def _delete(driver: Driver, *names: str) -> None:
    for name in names:
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it ended meanwhile


def _init(paths: MeshPaths, name: str) -> int:
    pid = MeshFolders(paths).folder(name).status_value("child-pid")
    assert pid is not None
    return pid


def _spawned(paths: MeshPaths, name: str) -> bool:
    return _name(_parent(_init(paths, name))) == "sandmesh-zygote"


@asynccontextmanager
async def _killed(pid: int) -> AsyncGenerator[None]:
    """Kill a process, wait for its end, and run the block."""
    pidfd = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(10):
            await readable(pidfd)
        yield
    finally:
        os.close(pidfd)


async def test_twenty_sandboxes_made_at_once_differ_as_they_were_told(paths: MeshPaths) -> None:
    settings = _settings(paths)
    names = [f"sandbox-{number}" for number in range(20)]
    async with open_driver(settings) as driver:
        sandboxes = await asyncio.gather(*(_make(driver, settings, name, WHO=name) for name in names))
        assert all(_spawned(paths, name) for name in names)
        results = await asyncio.gather(
            *(run(sandbox, "echo $WHO; echo $WHO > mine; cat /workspace/*") for sandbox in sandboxes)
        )
        assert [result.stdout for result in results] == [f"{name}\n{name}\n" for name in names]
        await asyncio.gather(*(_delete(driver, name) for name in names))


async def test_limits_are_each_sandboxes_own(paths: MeshPaths) -> None:
    settings = _settings(paths)
    async with open_driver(settings) as driver:
        tight = request_of(settings, "tight")
        tight.spec.limits.file_bytes = 4096
        limited = (await driver.create_sandbox(tight)).sandbox
        free = await _make(driver, settings, "free")
        code = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[0])"
        assert await evaluate(limited, code) == 4096
        assert await evaluate(free, code) == -1
        await _delete(driver, "tight", "free")


async def test_what_an_interpreter_reads_at_its_start_is_given_by_a_start_of_its_own(paths: MeshPaths) -> None:
    settings = _settings(paths)
    async with open_driver(settings) as driver:
        sandbox = await _make(driver, settings, "one", LC_ALL="C", HOME="/tmp")
        assert not _spawned(paths, "one")
        assert (await run(sandbox, "echo $LC_ALL $HOME")).stdout == "C /tmp\n"
        await _delete(driver, "one")


async def _cell(sandbox: pb.RuntimeSandbox, code: str) -> str:
    """Run a cell in a sandbox's kernel, and give what it printed."""
    async with open_link(sandbox, 60) as link:
        call = AgentCall(link)
        call.start(sandbox.sandbox_id, "run_ipython_cell", {"code": code})
        printed = b"".join([event.output.data for event in await call.wait()])
    return printed.decode()


async def test_random_numbers_differ_between_kernels_of_one_zygote(paths: MeshPaths) -> None:
    settings = _settings(paths)
    async with open_driver(settings) as driver:
        sandboxes = [await _make(driver, settings, name) for name in ("one", "two")]
        code = "import random, uuid, numpy; print(random.random(), numpy.random.rand(), uuid.uuid4())"
        one, two = [(await _cell(sandbox, code)).split() for sandbox in sandboxes]
        assert len(one) == 3
        assert all(first != second for first, second in zip(one, two, strict=True))
        await _delete(driver, "one", "two")


# The interpreter's own code is not among it: Debian's is not position-independent, so that its place is known anyway.
WHAT_FORKS_SHARE = """
import ctypes
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_void_p
maps = [(line.split("-")[0], line.split()[-1]) for line in open("/proc/self/maps")]
places = [next(start for start, name in maps if what in name) for what in ("/libc.so", "[heap]", "[stack]", "[vdso]")]
print(hash("x"), ctypes.string_at(libc.getauxval(25), 16).hex(), *places)
"""


async def _make_for(driver: Driver, settings: BubblewrapSettings, name: str, owner: str) -> list[str]:
    """Create an owner's sandbox, and return its kernel's hash of "x", AT_RANDOM, and addresses."""
    request = request_of(settings, name)
    request.record_labels.update({"session": name, "user": owner} if owner else {})
    found = (await _cell((await driver.create_sandbox(request)).sandbox, WHAT_FORKS_SHARE)).split()
    assert len(found) == 6
    return found


def _differ(one: list[str], other: list[str]) -> bool:
    return all(first != second for first, second in zip(one, other, strict=True))


@pytest.mark.parametrize("stands_by", [False, True])
async def test_owners_share_neither_hashes_nor_canary_nor_addresses(paths: MeshPaths, stands_by: bool) -> None:
    settings = _settings(paths, stands_by=stands_by)
    owners = ["ada", "bob", "ada", "bob", "eve"]
    async with open_driver(settings) as driver:
        ada, bob, *again, eve = [await _make_for(driver, settings, f"s{at}", owner) for at, owner in enumerate(owners)]
        assert _differ(ada, bob)
        assert _differ(eve, ada)
        assert _differ(eve, bob)
        # What an owner's own sandboxes share spares each the start of an interpreter.
        assert again == [ada, bob]
        assert all(_spawned(paths, f"s{at}") for at in range(5))
        await _delete(driver, *(f"s{at}" for at in range(5)))


async def test_a_template_can_have_each_sandbox_started_alone(paths: MeshPaths) -> None:
    settings = _settings(paths)
    base = load_templates()["base"]
    alone = {"base": base.model_copy(update={"runtime_config": {"start": '"exec"'}})}
    async with open_driver(settings, templates=alone) as driver:
        one, two = [await _make_for(driver, settings, name, "ada") for name in ("one", "two")]
        assert _differ(one, two)
        assert not _spawned(paths, "one")
        await _delete(driver, "one", "two")
    wrong = {"base": base.model_copy(update={"runtime_config": {"start": '"fork"'}})}
    async with open_driver(settings, templates=wrong) as driver:
        with pytest.raises(CapabilityMissing, match="knows no runtime_config start of 'base', only start: exec"):
            await _make(driver, settings, "one")


async def test_owners_beyond_the_most_and_pools_share_a_zygote_that_is_replaced(paths: MeshPaths) -> None:
    settings = _settings(paths, zygotes=1, zygote_forks=2)
    owners = ["ada", "bob", "", "eve"]
    async with open_driver(settings) as driver:
        ada, bob, pool, _ = [await _make_for(driver, settings, f"s{at}", owner) for at, owner in enumerate(owners)]
        assert _differ(ada, bob)
        assert bob == pool
        async with asyncio.timeout(30):
            while (last := await _make_for(driver, settings, "last", "")) == bob:
                await _delete(driver, "last")
        assert _differ(last, bob)
        await _delete(driver, "last", *(f"s{at}" for at in range(4)))


async def test_zygotes_of_idle_owners_end_and_make_room_once_their_sandboxes_are_gone(paths: MeshPaths) -> None:
    settings = _settings(paths, zygotes=2, zygote_idle=0.001)
    async with open_driver(settings) as driver:
        ada = await _make_for(driver, settings, "a", "ada")
        bob = await _make_for(driver, settings, "b", "bob")
        # Ada's spawns no more, but counts while its sandbox lives: the next owner's is shared.
        eve = await _make_for(driver, settings, "e", "eve")
        assert await _make_for(driver, settings, "pool", "") == eve
        assert _differ(ada, eve)
        assert _differ(bob, eve)
        await _delete(driver, "a", "b", "e", "pool")
        async with asyncio.timeout(30):
            while _zygotes() > 1:  # noqa: ASYNC110 - processes end without an event
                await asyncio.sleep(0.01)
        dan = await _make_for(driver, settings, "d", "dan")
        assert await _make_for(driver, settings, "d2", "dan") == dan
        assert await _make_for(driver, settings, "pool", "") != dan
        await _delete(driver, "d", "d2", "pool")


async def test_user_code_has_no_descriptor_of_another(paths: MeshPaths) -> None:
    settings = _settings(paths)
    async with open_driver(settings) as driver:
        await _make(driver, settings, "one")
        two = await _make(driver, settings, "two")
        listed = (await run(two, "ls -l /proc/self/fd")).stdout.splitlines()[1:]
        targets = {line.split(" -> ")[1] for line in listed}
        assert all(target.startswith(("pipe:", "/proc/", "/dev/null")) for target in targets), targets
        await _delete(driver, "one", "two")


def _opened(pid: int) -> set[tuple[int, int]]:
    """Return a process's open files, by device and inode, without devices and anonymous inodes."""
    found: set[tuple[int, int]] = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            target = str(path.readlink())
            if not target.startswith(("/dev/", "anon_inode:")):
                found.add((path.stat().st_dev, path.stat().st_ino))
    return found


@pytest.mark.needs("root")
async def test_agents_of_one_zygote_have_no_open_file_in_common(paths: MeshPaths) -> None:
    settings = _settings(paths)
    async with open_driver(settings) as driver:
        for name in ("one", "two"):
            await run(await _make(driver, settings, name), "true")
        zygote = _opened(_parent(_init(paths, "one")))
        one, two = (_opened(_init(paths, name)) for name in ("one", "two"))
        assert one
        # Each has a workspace of its own at the same place.
        assert one & two <= {"/workspace"}
        # It keeps open the files for its sandboxes' ends, and some of its own.
        assert zygote & (one | two) == set()
        await _delete(driver, "one", "two")


def _zygotes() -> int:
    """Count the zygotes that descend from this process."""
    return sum(_name(pid) == "sandmesh-zygote" for pid in processes_below(os.getpid()))


async def test_the_first_create_uses_what_stands_by(paths: MeshPaths) -> None:
    # The forks of which a spare is made bear the zygote's name at first.
    settings = _settings(paths, stands_by=True, spares=0)
    async with open_driver(settings) as driver:
        await asyncio.gather(*(_make(driver, settings, name) for name in ("one", "two")))
        assert _parent(_init(paths, "one")) == _parent(_init(paths, "two"))
        # A second zygote would stay; what only forks for a sandbox bears the name, too, and ends.
        async with asyncio.timeout(30):
            while _zygotes() != 1:  # noqa: ASYNC110 - what happens has no event
                await asyncio.sleep(0.05)
        await _delete(driver, "one", "two")


async def test_a_zygote_claimed_while_it_starts_is_not_started_again_for_spares(paths: MeshPaths) -> None:
    settings = _settings(paths, stands_by=True, spares=1)
    async with open_driver(settings) as driver:
        await _make(driver, settings, "one")
        async with asyncio.timeout(30):
            while not MeshFolders(paths).all_staged():  # noqa: ASYNC110 - what happens has no event
                await asyncio.sleep(0.05)
        # A second one would start as soon as this spare is ready, and bear its name until it is up.
        await asyncio.sleep(2.0)
        assert _zygotes() == 1
        await _delete(driver, "one")


async def test_sandboxes_survive_their_zygote_and_the_next_create_starts_another(paths: MeshPaths) -> None:
    settings = _settings(paths)
    async with open_driver(settings) as driver:
        one = await _make(driver, settings, "one")
        async with _killed(_parent(_init(paths, "one"))):
            assert (await run(one, "echo here")).stdout == "here\n"
            two = await _make(driver, settings, "two")
            assert _spawned(paths, "two")
            assert (await run(two, "echo here")).stdout == "here\n"
            await _delete(driver, "one", "two")


async def test_sandboxes_survive_their_driver_and_how_they_end_is_still_told(paths: MeshPaths) -> None:
    settings = _settings(paths)
    async with open_driver(settings) as driver:
        await _make(driver, settings, "one")
    async with open_driver(settings) as driver:
        again = await _make(driver, settings, "one")
        assert (await run(again, "echo here")).stdout == "here\n"
        async with asyncio.timeout(10):
            async for change in driver.watch_sandboxes(pb.WatchSandboxesRequest(mesh_id=paths.mesh_id)):
                if change.synced:
                    os.kill(_init(paths, "one"), signal.SIGKILL)
                if change.sandbox.state == pb.RUNTIME_STATE_ENDED:
                    assert change.sandbox.end_detail == "signal 9"
                    break
    await sweep_state(paths)


async def test_a_zygote_that_cannot_start_makes_auto_choose_exec_and_say_why(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths, way="auto")
    async with open_driver(settings) as driver:
        before = (await driver.get_info(pb.GetInfoRequest())).runtime_version
        assert before.endswith("(fork)")
        broken = paths.agents.with_name("moved")
        paths.agents.rename(broken)
        try:
            await _refused(driver, settings)
        finally:
            broken.rename(paths.agents)
        after = (await driver.get_info(pb.GetInfoRequest())).runtime_version
        assert "because fork does not work: no zygote could be started" in after
        sandbox = await _make(driver, settings, "two")
        assert not _spawned(paths, "two")
        assert (await run(sandbox, "echo here")).stdout == "here\n"
        await _delete(driver, "two")


async def _refused(driver: Driver, settings: BubblewrapSettings) -> None:
    with pytest.raises(FileNotFoundError):
        await _make(driver, settings, "one")


async def test_a_zygote_whose_closing_is_cut_short_holds_nothing_open() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        closing = asyncio.create_task(RunningZygote(ours, os.pidfd_open(os.getpid())).close())
        async with asyncio.timeout(20):
            await readable(theirs.fileno())
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert ours.fileno() == -1


@pytest.mark.parametrize("unread", ["config", "response"])
async def test_what_is_killed_as_it_is_made_is_told_as_that(paths: MeshPaths, unread: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open_pipe() as config:
        spawn = Spawn(MeshFolders(paths).folder("sb_one"), None, ours, config, 1000)
        if unread == "config":
            ours.send(b"go")
        else:
            pidfd = os.pidfd_open(os.getpid())
            socket.send_fds(theirs, [b'{"user": true}'], [pidfd])
            os.close(pidfd)
        theirs.close()
        with pytest.raises(ZygoteGone, match="was killed"):
            await spawn.run(b"{}")


async def test_a_driver_that_ended_starts_no_zygote(paths: MeshPaths) -> None:
    settings = _settings(paths)
    async with open_driver(settings) as driver:
        await _make(driver, settings, "one")
        await _delete(driver, "one")
    with pytest.raises(SandboxStartFailed, match="closed its zygotes"):
        await _make(driver, settings, "two")
