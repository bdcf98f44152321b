"""Who holds which device: one sandbox at a time, from its create to its end, also over a restart of the driver."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sandmesh.errors import CapabilityMissing, PoolExhausted
from sandmesh.shared.files.atomic_file import open_replacement
from sandmeshd.drivers.egress.devices.adb_server import AdbFailed, AdbServer
from sandmeshd.drivers.egress.devices.session import DeviceSession
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import ProxyStream

GROUP: Final = "mobile"
"""The group of tools whose sandboxes hold a device."""
_SECONDS: Final = 60.0
_WAIT_SECONDS: Final = 5.0
"""For a device whose holder is ending."""
_DONE: Final = b"sandmesh-reset-done"
_FIX: Final = "attach one to the node: sandmesh up --adb-device SERIAL, as `adb devices` there lists it"
RESET: Final = r"""
own=$(id -u)
for package in $(pm list packages -3 | cut -d: -f2); do pm clear "$package"; done
for process in $(pgrep -u "$own"); do
  [ "$process" = $$ ] || [ "$(cat /proc/$process/comm)" = adbd ] || kill -9 "$process"
done
am kill-all
rm -rf /sdcard/* /data/local/tmp/*
input keyevent KEYCODE_WAKEUP
input keyevent KEYCODE_HOME
"""
"""Clears the data of installed apps, ends what adb started, removes files, and shows the home screen."""
_LENGTH: Final = re.compile(rb"[0-9a-fA-F]{4}")


class Devices:
    """The devices of a node and their leases, each a file of `folder` with the sandbox's id as its name."""

    def __init__(self, folder: Path, settings: EgressSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._server = AdbServer(settings.adb_server)
        self._released = asyncio.Event()
        # What is damaged is the lease of no device, and goes with its sandbox.
        files = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
        self._held = {path.name: path.read_text(errors="replace") for path in files}

    @property
    def serials(self) -> tuple[str, ...]:
        """The devices that are attached."""
        return self._settings.adb_devices

    def keep(self, sandbox_ids: Iterable[str]) -> None:
        """Release the devices of all other sandboxes."""
        for gone in self._held.keys() - set(sandbox_ids):
            self.release(gone)

    def holds(self, sandbox_id: str) -> bool:
        """Return whether a sandbox has a device."""
        return sandbox_id in self._held

    async def take(self, sandbox_id: str) -> None:
        """Lease a free device to a sandbox, and reset it; a sandbox that has one keeps it as it is.

        Raises:
            CapabilityMissing: The node has no devices.
            PoolExhausted: All are held, or do not answer.
        """
        if sandbox_id in self._held:
            return
        if not self.serials:
            raise CapabilityMissing(f"the node has no Android device: {_FIX}", {"needs": "adb_device", "fix": _FIX})
        deadline = asyncio.get_running_loop().time() + _WAIT_SECONDS
        while True:
            self._released.clear()
            states = await self._try(sandbox_id)
            if sandbox_id in self._held:
                return
            try:
                async with asyncio.timeout_at(deadline):
                    await self._released.wait()
            except TimeoutError:
                break
        advice = "Release a sandbox that holds one, or attach another"
        message = f"no Android device is free: {'; '.join(states)}. {advice}"
        raise PoolExhausted(message, {"devices": str(len(self.serials))}, retry_after=1.0)

    async def _try(self, sandbox_id: str) -> list[str]:
        """Lease the first free device to a sandbox; return why those before it, or all, are not free."""
        states: list[str] = []
        for serial in self.serials:
            holder = next((one for one, held in self._held.items() if held == serial), None)
            if holder is not None:
                states.append(f"{serial} is held by {holder}")
                continue
            self._held[sandbox_id] = serial
            try:
                await self._reset(serial)
            except AdbFailed as failure:
                del self._held[sandbox_id]
                states.append(f"{serial} cannot be used ({failure})")
            except BaseException:
                del self._held[sandbox_id]
                raise
            else:
                self._write(sandbox_id, serial)
                break
        return states

    def release(self, sandbox_id: str) -> None:
        """End a sandbox's lease; its device is reset before the next."""
        self._held.pop(sandbox_id, None)
        (self._folder / sandbox_id).unlink(missing_ok=True)
        self._released.set()

    def _write(self, sandbox_id: str, serial: str) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with open_replacement(str(self._folder / sandbox_id), 0o600) as file:
            file.write(serial.encode())

    async def _reset(self, serial: str) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                said = await self._server.shell(serial, f"{self._settings.adb_reset or RESET}\necho {_DONE.decode()}")
        except TimeoutError:
            raise AdbFailed(f"its reset took longer than {_SECONDS:g} s") from None
        if _DONE not in said:
            raise AdbFailed(f"its reset ended early: {said[-200:].decode('utf-8', 'replace').strip() or 'no output'}")

    async def serve(self, sandbox_id: str, stream: ProxyStream) -> None:
        """Serve the connection of an adb client in a sandbox that holds a device."""
        await DeviceSession(stream, self._server, self._held[sandbox_id], self._settings.idle_seconds).serve()


def is_adb(first: bytes) -> bool:
    """Return whether a connection begins as an adb client's does: with four hex digits, as no request of HTTP has."""
    return _LENGTH.match(first) is not None
