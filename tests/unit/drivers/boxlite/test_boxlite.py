"""The boxlite driver on BoxLite's real library, up to where a virtual machine starts: this machine may have no KVM."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import (
    CapabilityMissing,
    RuntimeUnavailable,
    SandboxNotFound,
    SandboxStartFailed,
    TemplateBuildFailed,
)
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.boxlite.app import why_no_guest
from sandmeshd.drivers.boxlite.boxes import NOWHERE, Box, BoxPlan, box_name, mesh_prefix, open_boxes, options_of, shims
from sandmeshd.drivers.boxlite.composition import open_driver
from sandmeshd.drivers.boxlite.layout import layout_of
from sandmeshd.drivers.boxlite.settings import BoxliteSettings
from sandmeshd.drivers.node.records import MeshFolders, SpecRecord

from .conftest import save_image, tarball

GIGABYTE = 1 << 30
no_guests = pytest.mark.skipif(not why_no_guest(), reason="guests start on this machine: make boxlite-tests")


def request(settings: BoxliteSettings, **fields: Any) -> pb.CreateSandboxRequest:
    spec = sandbox_pb2.SandboxSpec(template="base", **fields)
    return pb.CreateSandboxRequest(sandbox_id="one", mesh_id=settings.paths.mesh_id, spec=spec)


def plan_of(settings: BoxliteSettings, sandbox_id: str = "one") -> BoxPlan:
    layout = layout_of(settings.image_directory, "base")
    name = box_name(settings.paths.mesh_id, sandbox_id)
    born = settings.image_directory.parent / "born"
    born.mkdir(exist_ok=True)
    return BoxPlan(name, layout, 1, 512, born, ["--born"], detached=True)


def recorded(settings: BoxliteSettings, sandbox_id: str = "one") -> None:
    """Write the record of a sandbox that ran."""
    folder = MeshFolders(settings.paths).folder(sandbox_id)
    folder.root.mkdir(parents=True)
    sandbox = pb.RuntimeSandbox(sandbox_id=sandbox_id, mesh_id=settings.paths.mesh_id, state=pb.RUNTIME_STATE_RUNNING)
    SpecRecord(sandbox, 1).write(folder)


# The probe.


def machine(folder: Path, flags: str = "fpu vmx", *, device: bool = True, software: bool = False) -> Path:
    """Make the files by which a machine shows what it can."""
    for name in ("dev", "proc", "sys/module"):
        (folder / name).mkdir(parents=True)
    (folder / "proc/cpuinfo").write_text(f"flags : {flags}\n")
    if device:
        (folder / "dev/kvm").touch()
    if software:
        (folder / "sys/module/kvm_pvm").mkdir()
    return folder


def test_a_machine_that_starts_guests_is_believed(tmp_path: Path) -> None:
    assert why_no_guest(machine(tmp_path)) == ""


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"device": False}, "there is no /dev/kvm"),
        ({"software": True}, "kvm_pvm"),
        ({"flags": "fpu"}, "neither VT-x nor AMD-V"),
    ],
)
def test_a_machine_that_starts_no_guests_is_refused_with_the_reason(
    tmp_path: Path, facts: dict[str, Any], why: str
) -> None:
    assert why in why_no_guest(machine(tmp_path, **facts))


@no_guests
async def test_a_mesh_on_a_machine_without_guests_is_told_so_before_anything_is_made(settings: BoxliteSettings) -> None:
    with pytest.raises(RuntimeUnavailable, match="BoxLite cannot start sandboxes here") as raised:
        async with open_plugin("boxlite", settings):
            pass
    assert "another driver" in raised.value.facts["fix"]
    assert not settings.home_directory.exists()


# Images.


def test_an_archive_of_docker_save_becomes_a_layout_that_says_what_its_configuration_does(tmp_path: Path) -> None:
    layer = save_image(tmp_path / "base.tar")
    layout = layout_of(tmp_path, "base")
    index = json.loads((layout / "index.json").read_text())
    blobs = layout / "blobs/sha256"
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    [described] = manifest["layers"]
    assert (blobs / described["digest"][7:]).read_bytes() == layer
    assert all(sha256(blob.read_bytes()).hexdigest() == blob.name for blob in blobs.iterdir())
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}


def test_layers_that_are_compressed_are_taken_too(tmp_path: Path) -> None:
    layer = save_image(tmp_path / "base.tar")
    with tarfile.open(tmp_path / "base.tar") as saved:
        files = {one.name: saved.extractfile(one).read() for one in saved}  # type: ignore[union-attr]  # all are files
    (tmp_path / "base.tar").write_bytes(tarball({**files, "one/layer.tar": gzip.compress(layer)}))
    layout = layout_of(tmp_path, "base")
    assert (layout / "blobs/sha256" / sha256(layer).hexdigest()).read_bytes() == layer


def test_a_layout_is_made_again_when_its_archive_changed_and_only_then(tmp_path: Path) -> None:
    save_image(tmp_path / "base.tar")
    first = (layout_of(tmp_path, "base") / "index.json").stat().st_mtime_ns
    assert (layout_of(tmp_path, "base") / "index.json").stat().st_mtime_ns == first
    layer = save_image(tmp_path / "base.tar", b"#!/bin/other\n")
    assert (layout_of(tmp_path, "base") / "blobs/sha256" / sha256(layer).hexdigest()).exists()


@pytest.mark.parametrize("data", [b"", b"no archive", tarball({"manifest.json": b"[]"}), tarball({"other": b""})])
def test_an_archive_that_is_no_image_leaves_nothing_and_says_what_to_do(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "base.tar").write_bytes(data)
    with pytest.raises(TemplateBuildFailed, match="is not an image of docker save"):
        layout_of(tmp_path, "base")
    assert [path.name for path in tmp_path.iterdir()] == ["base.tar"]


async def test_a_missing_image_names_the_command_that_makes_it(settings: BoxliteSettings) -> None:
    (settings.image_directory / "base.tar").unlink()
    async with open_driver(settings) as driver:
        with pytest.raises(TemplateBuildFailed, match=r"docker save sandmesh/base -o .*base\.tar"):
            await driver.create_sandbox(request(settings))
        assert not (await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=settings.paths.mesh_id))).sandboxes


# Boxes.


def test_a_box_has_a_port_on_this_machine_alone_and_a_network_that_leads_nowhere(settings: BoxliteSettings) -> None:
    options = options_of(plan_of(settings))
    assert (options.network.outbound.mode, list(options.network.outbound.allow_net)) == ("enabled", [NOWHERE])
    assert (options.detach, options.auto_delete, options.auto_resume, options.user) == (True, 0, False, "0")


async def test_boxes_are_found_by_their_names_by_the_next_driver(settings: BoxliteSettings) -> None:
    name = plan_of(settings).name
    async with open_boxes(settings.home_directory) as boxes:
        await boxes.create(plan_of(settings))
        with pytest.raises(SandboxStartFailed, match="already exists"):
            await boxes.create(plan_of(settings))
    async with open_boxes(settings.home_directory) as boxes:
        [found] = await boxes.list(mesh_prefix(settings.paths.mesh_id))
        assert (found.name, found.is_running, found.port) == (name, False, 0)
        assert await boxes.list(mesh_prefix("another")) == []
        await boxes.remove(name)
        await boxes.remove(name)
        assert await boxes.list("") == []


async def test_two_drivers_on_one_home_are_refused(settings: BoxliteSettings) -> None:
    async with open_boxes(settings.home_directory):
        with pytest.raises(RuntimeUnavailable, match="one driver at a time") as raised:
            async with open_boxes(settings.home_directory):
                pass
    assert "SANDMESH_BOXLITE_HOME" in raised.value.facts["fix"]


async def test_a_driver_that_starts_removes_boxes_that_no_sandbox_has_and_tells_of_those_that_ended(
    settings: BoxliteSettings,
) -> None:
    async with open_boxes(settings.home_directory) as boxes:
        for name in ("one", "of-a-killed-create"):
            await boxes.create(plan_of(settings, name))
    recorded(settings)
    recorded(settings, "gone")
    async with open_driver(settings) as driver:
        listed = (await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=settings.paths.mesh_id))).sandboxes
        assert {one.sandbox_id: one.end_detail for one in listed} == {
            "gone": "its box is gone",
            "one": "its box is configured",
        }
        for one in listed:
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=one.sandbox_id))
        with pytest.raises(SandboxNotFound):
            await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id="one"))
    async with open_boxes(settings.home_directory) as boxes:
        assert await boxes.list("") == []


@pytest.fixture
def shim(settings: BoxliteSettings) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that a box of the home left."""
    folder = settings.home_directory / "boxes" / "left" / "bin"
    folder.mkdir(parents=True)
    shutil.copy("/bin/sleep", folder / "boxlite-shim")
    process = subprocess.Popen([str(folder / "boxlite-shim"), "1000"])
    yield process
    process.kill()
    process.wait()


async def test_processes_that_boxes_left_are_ended(settings: BoxliteSettings, shim: subprocess.Popen[bytes]) -> None:
    assert shims(settings.home_directory) == [(shim.pid, "left")]
    assert shims(settings.home_directory.parent / "another") == []
    async with open_driver(settings):
        assert await asyncio.to_thread(shim.wait, 10) == -9
    assert shims(settings.home_directory) == []


@no_guests
async def test_a_virtual_machine_that_does_not_start_is_an_error_and_leaves_nothing(settings: BoxliteSettings) -> None:
    # BoxLite itself gives up after 30 s.
    async with open_driver(settings.model_copy(update={"start_timeout": 4})) as driver:
        detail = ""
        try:
            await driver.create_sandbox(request(settings))
        except SandboxStartFailed as error:
            detail = error.facts["detail"]
        assert "its virtual machine" in detail
        assert not (await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=settings.paths.mesh_id))).sandboxes
        assert shims(settings.home_directory) == []
    assert not list(settings.paths.sandboxes.iterdir())
    assert await boxes_of_free_home(settings.home_directory) == []


async def boxes_of_free_home(home: Path) -> list[Box]:
    """Return the boxes of a home once it is free: a start that BoxLite has not given up yet holds it, up to 30 s."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with open_boxes(home) as boxes:
                    return await boxes.list("")
            except RuntimeUnavailable:
                await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"limits": sandbox_pb2.Limits(pids=10)}, "pids"),
        ({"limits": sandbox_pb2.Limits(disk_bytes=GIGABYTE)}, "disk"),
        ({"workspace_dir": "/srv"}, "workspace_dir"),
        ({"port_count": 1}, "ports"),
    ],
)
async def test_what_a_box_does_not_enforce_is_refused(
    settings: BoxliteSettings, fields: dict[str, Any], needs: str
) -> None:
    async with open_driver(settings) as driver:
        with pytest.raises(CapabilityMissing, match=needs):
            await driver.create_sandbox(request(settings, **fields))
