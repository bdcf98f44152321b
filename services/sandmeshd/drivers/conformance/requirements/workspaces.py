"""Directories of the node as workspaces: used in place, and never removed."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument, SandboxNotFound, SandmeshError, WorkspaceDirRefused
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.assertions import expect_equal, expect_error
from sandmeshd.drivers.conformance.input_calls import carry
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.conformance.subject import Subject


@contextmanager
def _folder(subject: Subject) -> Generator[Path]:
    made = Path(subject.shared) / secrets.token_hex(8)
    made.mkdir()
    # Whichever uid user code has here.
    made.chmod(0o777)
    try:
        yield made
    finally:
        shutil.rmtree(made)


async def _able(driver: Driver, subject: Subject) -> bool:
    able = (await driver.get_info(pb.GetInfoRequest())).capabilities.workspace_dir
    if not able:
        await expect_error(CapabilityMissing, driver.create_sandbox(subject.request(workspace_dir="/srv")))
    return able and bool(subject.shared)


async def a_directory_of_the_node_is_a_workspace_and_stays(subject: Subject) -> None:
    """Commands and calls on files work in it, several sandboxes in parallel; what is in it outlives them."""
    async with subject.open() as driver:
        if not await _able(driver, subject):
            return
        with _folder(subject) as folder:
            await asyncio.to_thread((folder / "before").write_text, "host")
            async with subject.sandbox(driver, workspace_dir=str(folder)) as one:
                seen = await run(one, "cat before; pwd; mkdir sub; echo one > sub/file")
                expect_equal(seen.stdout, "host/workspace\n", "what the first sees")
                written = await carry(one, "fs.write", {"path": "sent"}, b"sent")
                expect_equal(written.result.is_error, False, f"writing a file ({written.result.message})")
                async with subject.sandbox(driver, workspace_dir=str(folder)) as two:
                    seen = await run(two, "cat sub/file sent; rm before")
                    expect_equal(seen.stdout, "one\nsent", "what the second sees")
            left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
            expect_equal(left, {"sub", "sub/file", "sent"}, "what is left")


async def what_may_be_no_workspace_is_refused(subject: Subject) -> None:
    """What no setting allows, the node's own, what a link leads to, what is not there, and what cannot hold there."""
    async with subject.open() as driver:
        if not await _able(driver, subject):
            return
        with _folder(subject) as folder:
            (folder / "link").symlink_to("/etc")
            (folder / "file").touch()
            for bad in ("/", "/etc", "/proc/self", "/dev", f"{folder}/link", f"{folder}/../../etc"):
                await _is_refused(WorkspaceDirRefused, driver, subject.request(workspace_dir=bad))
            for bad in (f"{folder}/file", f"{folder}/none"):
                await _is_refused(WorkspaceDirRefused, driver, subject.request(workspace_dir=bad))
            await _is_refused(InvalidArgument, driver, subject.request(workspace_dir="relative"))
            disk = sandbox_pb2.Limits(disk_bytes=1 << 20)
            limited = subject.request(workspace_dir=str(folder), limits=disk)
            await _is_refused(CapabilityMissing, driver, limited)


async def _is_refused(kind: type[SandmeshError], driver: Driver, request: pb.CreateSandboxRequest) -> None:
    await expect_error(kind, driver.create_sandbox(request))
    await expect_error(SandboxNotFound, driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=request.sandbox_id)))
