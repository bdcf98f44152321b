"""Leases of devices: kept over a restart of their driver, and not longer than their sandboxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.egress.devices.leases import Devices, is_adb
from sandmeshd.drivers.egress.settings import EgressSettings
from tests.adb_device import HostServer, run_device


@pytest.mark.needs("adb")
async def test_a_lease_outlives_its_driver_and_ends_with_its_sandbox(tmp_path: Path) -> None:
    folder = tmp_path / "devices"
    async with run_device() as device, HostServer(tmp_path).running() as server:
        await server.attach(device)
        settings = EgressSettings(adb_devices=(device.serial,), adb_server=server.address)
        await Devices(folder, settings).take("sb_one")
        again = Devices(folder, settings)
        again.keep(["sb_one", "sb_two"])
        assert again.holds("sb_one")
        await again.take("sb_one")
        assert device.resets == 1
        again.keep(["sb_two"])
        assert not again.holds("sb_one")
        assert list(folder.iterdir()) == []
        await again.take("sb_two")
        assert device.resets == 2


async def test_a_node_without_devices_says_how_to_attach_one(tmp_path: Path) -> None:
    with pytest.raises(CapabilityMissing, match="sandmesh up --adb-device SERIAL"):
        await Devices(tmp_path / "none", EgressSettings()).take("sb_one")


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (b"000chost:version", True),
        (b"000C", True),
        (b"GET http://a/", False),
        (b"CONNECT a:1", False),
        (b"00", False),
        (b"", False),
    ],
)
def test_an_adb_client_is_told_from_one_of_http(first: bytes, expected: bool) -> None:
    assert is_adb(first) is expected
