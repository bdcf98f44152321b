"""The uids of sandboxes on the host: one each on the whole machine, for exactly as long as the sandbox lives."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import RuntimeUnavailable, SandboxStartFailed
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver, sweep_state
from sandmeshd.drivers.bubblewrap.identity import UidLease, UidLeases, check_range
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.processes.child_process import readable

from .conftest import prepare, request_of
from .test_spares import init_of, prepared_driver

PROGRAM = Path(__file__).with_name("driver_program.py")
NOWHERE = MeshPaths("none", Path("/none"), Path("/none"))
IN_A_NAMESPACE = """
import sys
from pathlib import Path
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.bubblewrap import BubblewrapSettings
from sandmeshd.runtime.paths import MeshPaths
paths = MeshPaths("none", Path("/none"), Path("/none"))
print(len(BubblewrapSettings(paths=paths).uid_range))
try:
    BubblewrapSettings(paths=paths, sandbox_uids="2000000000-2000065535").uid_range
except RuntimeUnavailable as error:
    print(error.facts["fix"])
"""


def settings_with(**values: str) -> BubblewrapSettings:
    """Return settings that no driver uses."""
    return BubblewrapSettings.model_validate({"paths": NOWHERE, **values})


@asynccontextmanager
async def open_mesh(paths: MeshPaths, **values: str | bool) -> AsyncGenerator[tuple[Driver, BubblewrapSettings]]:
    """Open a driver whose template is prepared."""
    settings = BubblewrapSettings.model_validate({"paths": paths, "ends_with_driver": True, **values})
    async with open_driver(settings) as driver:
        await prepare(driver)
        yield driver, settings


def uid_of(pid: int) -> int:
    """Return a process's uid on the host."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))


def init_uid(paths: MeshPaths, name: str = "one") -> int:
    """Return the uid of a sandbox's PID 1 on the host."""
    pid = MeshFolders(paths).folder(name).status_value("child-pid")
    assert pid is not None
    return uid_of(pid)


def is_free(uid: int) -> bool:
    """Return whether a uid of the machine can be leased."""
    try:
        UidLeases(settings_with(sandbox_uids=f"{uid}-{uid}")).lease().close()
    except SandboxStartFailed:
        return False
    return True


@pytest.fixture
def unused() -> str:
    """Return a range of one uid that no other test has."""
    uid = 2_000_000_000 - os.getpid()
    return f"{uid}-{uid}"


@pytest.mark.needs("root")
@pytest.mark.parametrize("way", ["fork", "exec"])
@pytest.mark.usefixtures("prepared")
async def test_each_sandbox_of_the_machine_has_a_uid_of_its_own(paths: MeshPaths, more: MeshPaths, way: str) -> None:
    async with open_mesh(paths, way=way) as (one, settings), open_mesh(more, way=way) as (two, others):
        for name in ("a", "b", "c"):
            await one.create_sandbox(request_of(settings, name))
            await two.create_sandbox(request_of(others, name))
        uids = [init_uid(of, name) for of in (paths, more) for name in ("a", "b", "c")]
        assert len(set(uids)) == 6
        assert all(uid in settings.uid_range for uid in uids)
        listed = await one.list_sandboxes(pb.ListSandboxesRequest(mesh_id=paths.mesh_id))
        assert [int(sandbox.enforced["host_uid"]) for sandbox in listed.sandboxes] == uids[:3]
        assert [MeshFolders(paths).folder(name).workspace.stat().st_uid for name in ("a", "b", "c")] == uids[:3]


@pytest.mark.needs("root")
@pytest.mark.usefixtures("prepared")
async def test_a_spare_has_the_uid_that_its_sandbox_will_have(paths: MeshPaths) -> None:
    async with prepared_driver(paths, ends_with_driver=True) as mesh:
        (spare,) = await mesh.spares(1)
        uid = uid_of(init_of(paths, spare))
        sandbox = await mesh.make("one")
        assert sandbox.enforced["host_uid"] == str(uid) == str(init_uid(paths))
        assert (await run(sandbox, "touch file && ls -ln file")).stdout.split()[2] == "1000"
        assert (MeshFolders(paths).folder("one").workspace / "file").stat().st_uid == uid


@pytest.mark.needs("root")
@pytest.mark.parametrize("ends", ["yes", "no"])
@pytest.mark.usefixtures("prepared")
async def test_a_uid_is_free_when_its_sandbox_ends_and_not_before(paths: MeshPaths, ends: str) -> None:
    arguments = (paths.mesh_id, str(paths.state_root), str(paths.runtime_root), ends)
    driver = await asyncio.create_subprocess_exec(sys.executable, PROGRAM, *arguments, stderr=asyncio.subprocess.PIPE)
    assert driver.stderr is not None
    async with asyncio.timeout(60):
        while (await driver.stderr.readline()) not in (b"made\n", b""):
            pass
    uid, pid = init_uid(paths), MeshFolders(paths).folder("one").status_value("child-pid")
    assert pid is not None
    init = os.pidfd_open(pid)
    try:
        assert not is_free(uid)
        driver.kill()
        await driver.wait()
        if ends == "no":
            await _adopt(paths, uid)
        await asyncio.wait_for(readable(init), 60)
        assert is_free(uid)
    finally:
        os.close(init)


async def _adopt(paths: MeshPaths, uid: int) -> None:
    """Check that a sandbox keeps its uid under the next driver, and end it."""
    assert not is_free(uid)
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        sandbox = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        assert sandbox.enforced["host_uid"] == str(uid) == str(init_uid(paths))
        assert (await run(sandbox, "touch file && cat file")).exit_code == 0
    await sweep_state(paths)


@pytest.mark.needs("root")
@pytest.mark.usefixtures("prepared")
async def test_a_create_beyond_the_last_uid_says_what_to_do(paths: MeshPaths, unused: str) -> None:
    async with open_mesh(paths, sandbox_uids=unused) as (driver, settings):
        await driver.create_sandbox(request_of(settings, "one"))
        with pytest.raises(SandboxStartFailed, match="widen SANDMESH_SANDBOX_UIDS"):
            await driver.create_sandbox(request_of(settings, "two"))
        assert not MeshFolders(paths).folder("two").is_there()
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
        await driver.create_sandbox(request_of(settings, "two"))


@pytest.mark.needs("root")
@pytest.mark.usefixtures("prepared")
async def test_without_a_range_sandboxes_share_a_uid(paths: MeshPaths) -> None:
    async with open_mesh(paths, sandbox_uids="none") as (driver, settings):
        for name in ("one", "two"):
            await driver.create_sandbox(request_of(settings, name))
        assert {init_uid(paths, name) for name in ("one", "two")} == {settings.sandbox_uid}


@pytest.mark.needs("root")
async def test_a_range_with_a_user_of_the_machine_is_refused(own_paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=own_paths, sandbox_uids="65530-65540")
    with pytest.raises(RuntimeUnavailable, match="SANDMESH_SANDBOX_UIDS") as refused:
        async with open_driver(settings):
            pass
    assert "nobody" in refused.value.message or "nogroup" in refused.value.message


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("passwd", "ada:x:5004:100::/home/ada:/bin/sh"),
        ("group", "staff:x:5009:"),
        ("subuid", "ada:4000:1001"),
        ("subgid", "ada:5009:65536"),
    ],
)
def test_whose_uid_a_range_has_is_named(folder: Path, file: str, line: str) -> None:
    (folder / file).write_text(f"root:x:0:0::/root:/bin/sh\nbroken\n{line}\n")
    check_range(range(6000, 6010) if file != "subgid" else range(4000, 5009), 65432, folder)
    with pytest.raises(RuntimeUnavailable, match=f"{line.partition(':')[0]} in {folder / file}"):
        check_range(range(5000, 5010), 65432, folder)


def test_a_range_with_the_shared_uid_is_refused(folder: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="SANDMESH_SANDBOX_UID"):
        check_range(range(65000, 66000), 65432, folder)


@pytest.mark.parametrize("text", ["0-9", "9-5", "5", "a-b", "1-2147483648", "-", ""])
def test_what_is_not_a_range_of_uids_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        settings_with(sandbox_uids=text)


def test_an_ordinary_users_sandboxes_have_its_uid() -> None:
    settings = settings_with(sandbox_uids="2000000000-2000000009")
    own = os.geteuid()
    user = own or 65534
    os.seteuid(user)
    try:
        seen = settings.uid_range, settings.host_uid
    finally:
        os.seteuid(own)
    assert seen == (range(0), user)


@pytest.mark.needs("root", "user namespaces")
def test_uids_that_the_drivers_own_namespace_lacks_are_refused_or_by_default_not_used() -> None:
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", IN_A_NAMESPACE]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines() == ["0", "set SANDMESH_SANDBOX_UIDS to uids that this container has, or to none"]


@pytest.mark.needs("root")
def test_a_lease_lasts_until_the_last_copy_of_its_lock_is_closed(unused: str) -> None:
    uid = int(unused.partition("-")[0])
    lease = UidLeases(settings_with(sandbox_uids=unused)).lease()
    assert isinstance(lease, UidLease)
    assert lease.own == uid
    copy = os.dup(lease.lock)
    lease.close()
    assert not is_free(uid)
    os.close(copy)
    assert is_free(uid)


@pytest.mark.needs("root")
@pytest.mark.parametrize("way", ["fork", "exec"])
@pytest.mark.usefixtures("prepared")
async def test_user_code_enters_every_directory_of_its_system(paths: MeshPaths, way: str) -> None:
    async with open_mesh(paths, way=way) as (driver, settings):
        sandbox = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        # Those of the root itself: what is mounted into it keeps the modes that it has on the host.
        closed = await run(sandbox, "find / -xdev -type d ! -executable 2>/dev/null")
        assert closed.stdout == ""
        assert (await run(sandbox, "ls /opt/sandmesh/site/sandmeshd /etc/ssl/certs")).exit_code == 0
