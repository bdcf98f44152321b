"""Tests for an ordinary user with subordinate uids, as whom test_subordinate.py runs them."""

from __future__ import annotations

import os
import stat

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.cli.doctor.findings import Health
from sandmeshd.cli.doctor.machine import check_machine
from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.drivers.conformance.inside import run, run_cell
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.mesh import MeshSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.ordinary import SUBORDINATE

from .conftest import request_of
from .test_identity import init_uid, open_mesh

FILES = "mkdir -p a/b/c && echo text > a/b/c/file && chmod 0 a/b && echo text > flat"


@pytest.mark.parametrize("way", ["fork", "exec"])
@pytest.mark.usefixtures("prepared")
async def test_each_sandbox_has_a_subordinate_uid_of_its_own_and_leaves_nothing(paths: MeshPaths, way: str) -> None:
    async with open_mesh(paths, way=way) as (driver, settings):
        made = [(await driver.create_sandbox(request_of(settings, name))).sandbox for name in ("one", "two")]
        uids = [init_uid(paths, name) for name in ("one", "two")]
        assert len(set(uids)) == 2
        assert [int(sandbox.enforced["host_uid"]) for sandbox in made] == uids
        assert all(uid in SUBORDINATE for uid in uids)
        folders = [MeshFolders(paths).folder(name) for name in ("one", "two")]
        for sandbox, found, uid in zip(made, folders, uids, strict=True):
            assert (await run(sandbox, FILES)).exit_code == 0
            assert (await run_cell(sandbox, "import os; print(os.getuid(), os.getgid())")).stdout == "1000 1000\n"
            written = (found.workspace / "flat").stat()
            assert (written.st_uid, written.st_gid) == (uid, uid)
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=sandbox.sandbox_id))
        assert not any(found.root.exists() or found.sockets.exists() for found in folders)
        assert list(paths.sandboxes.iterdir()) == []


@pytest.mark.parametrize("way", ["fork", "exec"])
@pytest.mark.usefixtures("prepared")
async def test_a_sandbox_outlives_its_driver_and_is_swept_with_its_files(paths: MeshPaths, way: str) -> None:
    async with open_mesh(paths, way=way, ends_with_driver=False) as (driver, settings):
        sandbox = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        assert (await run(sandbox, FILES)).exit_code == 0
    async with open_mesh(paths, way=way, ends_with_driver=False) as (driver, settings):
        adopted = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        assert (await run(adopted, "cat flat")).stdout == "text\n"
    await sweep_state(paths)
    assert list(paths.sandboxes.iterdir()) == []


@pytest.mark.usefixtures("prepared")
async def test_nobody_else_of_the_machine_reaches_their_directories(paths: MeshPaths) -> None:
    async with open_mesh(paths) as (driver, settings):
        await driver.create_sandbox(request_of(settings, "one"))
        folder = MeshFolders(paths).folder("one")
        for inner in (folder.workspace, folder.sockets):
            closed = [above for above in inner.parents if above.stat().st_uid == os.geteuid()]
            assert any(stat.S_IMODE(above.stat().st_mode) & 0o077 == 0 for above in closed)


def test_the_doctor_names_their_uids() -> None:
    found = next(finding for finding in check_machine(MeshSettings()) if finding.name == "uids")
    seen = f"{SUBORDINATE.start}-{SUBORDINATE.stop - 1}, one for each sandbox"
    assert (found.health, found.seen) == (Health.GOOD, seen)
