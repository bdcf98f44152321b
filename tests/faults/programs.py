"""The processes of a world, each of which a test may kill and start again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.store.embedded import server_binary

START_SECONDS = 90.0
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


class Program:
    """A process that is started, killed and started again, always with the same command line."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.starts = 0
        self.ready = asyncio.Event()
        self._command = command
        self._environment = environment
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process's id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start it and wait until it serves."""
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, env=self._environment
            )
        async with asyncio.timeout(START_SECONDS):
            await self._serves(self._process)
        self.ready.set()

    async def kill(self, number: int = signal.SIGKILL) -> None:
        """End it with a signal, and wait for its end."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self.ready.clear()
        process.send_signal(number)
        await process.wait()

    async def stop(self) -> None:
        """End it in peace, or else by force."""
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                await self.kill(signal.SIGTERM)
        await self.kill()

    def use_interpreter(self, old: Path, new: Path) -> None:
        """Start with another interpreter from the next start on."""
        self._command = [str(new) if word == str(old) else word for word in self._command]

    def signal(self, number: int) -> None:
        """Send a signal that does not end it."""
        if self.pid is not None:
            os.kill(self.pid, number)

    async def _serves(self, process: asyncio.subprocess.Process) -> None:
        line = await process.stdout.readline() if process.stdout else b""
        if not line:
            raise RuntimeError(f"{self.name} did not start: {self._log.read_text()[-2000:]}")


class StoreServer(Protocol):
    """The Redis server of a world, the mesh's own or one beside it."""

    @property
    def environment(self) -> dict[str, str]:
        """What tells the services of it."""
        ...

    def client(self) -> Any:
        """Return a client of its own; redis-py's signatures are partly untyped."""
        ...

    async def restart(self, pause: float = 0.0, *, empty: bool = False) -> None:
        """Kill it, and return when it answers again, with its data or without."""
        ...

    async def find_pid(self) -> int:
        """Return the process that serves."""
        ...

    async def start(self) -> None:
        """Start it, unless the services do."""
        ...

    async def stop(self) -> None:
        """End it where nothing else does."""
        ...


class ExternalStore(Program):
    """A Redis server that the services are told by URL: it serves when it answers."""

    def __init__(self, folder: Path, log: Path, *, own_clock: bool = False) -> None:
        self.folder = folder
        self._clock = folder / "clock"
        self.socket = folder / "socket"
        command = [
            str(server_binary()), "--port", "0", "--unixsocket", str(self.socket), "--dir", str(folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always",
        ]  # fmt: skip
        folder.mkdir()
        environment = {"LC_ALL": "C.UTF-8"}
        if own_clock:
            self.set_clock("+0")
            file = {
                "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
            environment |= {"LD_PRELOAD": str(FAKETIME), **file}
        super().__init__("store", command, environment, log)

    @property
    def environment(self) -> dict[str, str]:
        return {"SANDMESH_REDIS_URL": f"unix://{self.socket}"}

    def client(self) -> Any:
        return _client(self.socket)

    def set_clock(self, offset: str) -> None:
        """Set its clock's offset, such as "+30m" or "-1h"."""
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(offset)
        fresh.rename(self._clock)

    def forget(self) -> None:
        """Lose all data, as a server without persistence does; it must not run."""
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    async def restart(self, pause: float = 0.0, *, empty: bool = False) -> None:
        await self.kill()
        if empty:
            self.forget()
        await asyncio.sleep(pause)
        await self.start()

    async def find_pid(self) -> int:
        return self.pid or 0

    async def _serves(self, process: asyncio.subprocess.Process) -> None:
        await _answers(self.socket, lambda: process.returncode is not None)


class EmbeddedStore:
    """The server that the services themselves run, whichever of them has the lock of its directory."""

    environment: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(self, paths: MeshPaths) -> None:
        self._data = paths.store / "appendonlydir"
        self._socket = paths.services / "r"

    def client(self) -> Any:
        return _client(self._socket)

    async def restart(self, pause: float = 0.0, *, empty: bool = False) -> None:
        """Kill it; a service starts it again, so that `pause` is not in this world's hands."""
        pid = await self.find_pid()
        if empty:
            # What it has written is gone with it: it reads the folder when it starts.
            shutil.rmtree(self._data, ignore_errors=True)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(START_SECONDS):
            await _answers(self._socket, lambda: False)

    async def find_pid(self) -> int:
        await _answers(self._socket, lambda: False)
        async with self.client() as client:
            return int((await client.info("server"))["process_id"])

    async def start(self) -> None:
        """Return at once: the services do it."""

    async def stop(self) -> None:
        """Return at once: the services do it."""


def _client(socket: Path) -> Any:
    return cast("Any", Redis).from_url(f"unix://{socket}", decode_responses=True)


async def _answers(socket: Path, ended: Any) -> None:
    async with _client(socket) as client:
        while not ended():
            with suppress(RedisError, OSError):
                if await client.ping():
                    return
            await asyncio.sleep(0.02)
    raise RuntimeError("the store did not start")
