"""Checks the Android devices that the settings attach, and whether Android could run here in a container."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sandmeshd.cli.doctor.findings import Finding, bad, good, unknown
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.drivers.egress.devices.adb_server import AdbFailed, AdbServer
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import settings_for

MACHINE: Final = "machine"
_BINDER: Final = "modprobe binder_linux devices=binder,hwbinder,vndbinder"
_START: Final = "start it with `adb start-server`, or give its address as SANDMESH_ADB_SERVER"


def check_devices(settings: MeshSettings, filesystems: Path = Path("/proc/filesystems")) -> Iterator[Finding]:
    """Check each attached device; without any, whether the kernel has what Android in a container needs."""
    egress = settings_for(settings, settings.driver, DriverSettings).egress
    if not egress.adb_devices:
        yield unknown(MACHINE, "android devices", f"none attached (sandmesh up --adb-device); {_redroid(filesystems)}")
    for serial in egress.adb_devices:
        yield asyncio.run(_check(AdbServer(egress.adb_server), serial))


async def _check(server: AdbServer, serial: str) -> Finding:
    name = f"android {serial}"
    try:
        version = int(await server.query("host:version"), 16)
    except (AdbFailed, ValueError) as failure:
        return bad(MACHINE, name, str(failure), _START)
    try:
        state = (await server.query(f"host-serial:{serial}:get-state")).decode("utf-8", "replace")
    except AdbFailed as failure:
        return bad(MACHINE, name, str(failure), "connect it, until `adb devices` lists it as `device`")
    if state != "device":
        return bad(MACHINE, name, f"its state is {state!r}", "unlock it and allow debugging from this machine")
    return good(MACHINE, name, f"attached by the adb server at {server.address}, version {version}")


def _redroid(filesystems: Path) -> str:
    found = filesystems.read_text().split() if filesystems.exists() else []
    if "binder" in found:
        return "the kernel has binder, so that redroid can run on Docker and be attached"
    return f"for Android in a container (redroid) the kernel lacks binder: {_BINDER}"
