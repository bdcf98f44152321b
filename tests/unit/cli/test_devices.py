"""What the doctor says of Android devices, and how they are named on the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandmeshd.cli.doctor.devices import check_devices
from sandmeshd.cli.doctor.findings import Health
from sandmeshd.cli.mesh.up import UpOptions
from sandmeshd.mesh import MeshSettings
from tests.adb_device import HostServer, run_device


def settings_of(*serials: str, server: str = "127.0.0.1:9") -> MeshSettings:
    return MeshSettings.model_validate({"adb_devices": serials, "adb_server": server})


@pytest.mark.parametrize(
    ("filesystems", "seen"),
    [
        ("nodev\tproc\n\text4\n", "modprobe binder_linux devices=binder,hwbinder,vndbinder"),
        ("nodev\tbinder\n", "has binder"),
    ],
)
def test_without_a_device_the_doctor_looks_for_binder(tmp_path: Path, filesystems: str, seen: str) -> None:
    (tmp_path / "filesystems").write_text(filesystems)
    [finding] = check_devices(settings_of(), tmp_path / "filesystems")
    assert finding.health is Health.UNKNOWN
    assert "sandmesh up --adb-device" in finding.seen
    assert seen in finding.seen


def test_a_server_that_does_not_run_is_a_problem_with_its_fix() -> None:
    [finding] = check_devices(settings_of("emulator-5554"))
    assert (finding.health, finding.name) == (Health.BAD, "android emulator-5554")
    assert "adb start-server" in finding.fix


@pytest.mark.needs("adb")
async def test_each_device_is_named_with_its_state(tmp_path: Path) -> None:
    async with run_device() as device, HostServer(tmp_path).running() as server:
        await server.attach(device)
        settings = settings_of(device.serial, "emulator-5554", server=server.address)
        attached, missing = await asyncio.to_thread(lambda: list(check_devices(settings)))
    assert (attached.health, attached.fix) == (Health.GOOD, "")
    assert attached.seen == f"attached by the adb server at {server.address}, version 41"
    assert (missing.health, missing.seen) == (Health.BAD, "device 'emulator-5554' not found")


def test_devices_of_the_command_line_are_settings_and_reach_a_mesh_in_the_background() -> None:
    options = UpOptions(adb_device=["emulator-5554", "10.0.0.7:5555"])
    assert options.settings()["adb_devices"] == ("emulator-5554", "10.0.0.7:5555")
    assert options.command_line() == ["--adb-device", "emulator-5554", "--adb-device", "10.0.0.7:5555"]
