"""What of a sandbox somebody removes on the host ends it with that reason, and leaves none of its processes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver
from sandmeshd.drivers.node import process_driver
from sandmeshd.drivers.node.records import Folder, MeshFolders
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.processes.child_process import readable
from sandmeshd.runtime.user_namespaces.removal import remove_tree

from .conftest import request_of

pytestmark = pytest.mark.usefixtures("prepared")


def remove_group(group: Path) -> None:
    """Remove a control group in use, as somebody does who takes it for a leftover: its processes move up before."""
    top = next(path for path in reversed(group.parents) if (path / "cgroup.procs").exists())
    inner = sorted(path for path in group.rglob("*") if path.is_dir())
    for each in (*reversed(inner), group):
        for pid in (each / "cgroup.procs").read_text().split():
            (top / "cgroup.procs").write_text(pid)
        each.rmdir()


async def detail_of_end(driver: Driver, folder: Folder) -> str:
    """Wait until a sandbox has ended and return why."""
    async with asyncio.timeout(60):
        while folder.is_alive():  # noqa: ASYNC110 - a lock tells nobody
            await asyncio.sleep(0.05)
    found = (await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=folder.sandbox_id))).sandbox
    assert found.state == pb.RUNTIME_STATE_ENDED
    return str(found.end_detail)


async def test_a_sandbox_whose_workspace_was_removed_on_the_host_ends_with_that_reason(
    paths: MeshPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_driver, "LOOK_SECONDS", 0.2)
    settings, folder = BubblewrapSettings(paths=paths), MeshFolders(paths).folder("one")
    async with open_driver(settings) as driver:
        await driver.create_sandbox(request_of(settings, "one"))
        await driver.create_sandbox(request_of(settings, "other"))
        remove_tree(folder.workspace)
        assert await detail_of_end(driver, folder) == f"its workspace was removed on the host ({folder.workspace})"
        assert MeshFolders(paths).folder("other").is_alive()


@pytest.mark.needs("control groups")
async def test_a_sandbox_whose_control_group_was_removed_ends_and_does_not_go_on_without_its_limits(
    paths: MeshPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_driver, "LOOK_SECONDS", 0.2)
    settings, folder = BubblewrapSettings(paths=paths), MeshFolders(paths).folder("one")
    async with open_driver(settings) as driver:
        request = request_of(settings, "one")
        request.spec.limits.memory_bytes = 256 << 20
        await driver.create_sandbox(request)
        remove_group(Path(folder.group_paths()[0]))
        assert "its control group was removed on the host" in await detail_of_end(driver, folder)
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))


async def test_a_sandbox_whose_whole_folder_was_removed_leaves_no_process_when_it_is_deleted(paths: MeshPaths) -> None:
    settings, folder = BubblewrapSettings(paths=paths), MeshFolders(paths).folder("one")
    async with open_driver(settings) as driver:
        await driver.create_sandbox(request_of(settings, "one"))
        init = os.pidfd_open(folder.status_value("child-pid") or 0)
        try:
            remove_tree(folder.root)
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
            async with asyncio.timeout(60):
                await readable(init)
        finally:
            os.close(init)
