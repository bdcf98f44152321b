"""A mesh whose services run apart, each of which a test may kill and start again."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweeping import remove
from sandmeshd.store.embedded import server_binary

START_SECONDS = 90.0
CLOCK = "STORE_CLOCK"
"""Environment of a world whose store has a clock that a test sets."""
_STATE = "SANDMESH_STATE_DIRECTORY"
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

    def signal(self, number: int) -> None:
        """Send a signal that does not end it."""
        if self.pid is not None:
            os.kill(self.pid, number)

    async def _serves(self, process: asyncio.subprocess.Process) -> None:
        line = await process.stdout.readline() if process.stdout else b""
        if not line:
            raise RuntimeError(f"{self.name} did not start: {self._log.read_text()[-2000:]}")


class StoreProgram(Program):
    """The Redis server: it serves when it answers."""

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
    def url(self) -> str:
        return f"unix://{self.socket}"

    def client(self) -> Any:
        """Give a client of its own; redis-py's signatures are partly untyped."""
        return cast("Any", Redis).from_url(self.url, decode_responses=True)

    def set_clock(self, offset: str) -> None:
        """Let its clock go an offset before or behind, as "+30m" or "-1h"."""
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(offset)
        fresh.rename(self._clock)

    def forget(self) -> None:
        """Lose all data, as a server without persistence does; it must not run."""
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    async def _serves(self, process: asyncio.subprocess.Process) -> None:
        async with self.client() as client:
            while process.returncode is None:
                with suppress(RedisError):
                    if await client.ping():
                        return
                await asyncio.sleep(0.02)
        raise RuntimeError(f"the store did not start: {self._log.read_text()[-2000:]}")


class World:
    """A Redis server, drivers, allocators, brokers and gateways, each a process."""

    def __init__(self, settings: MeshSettings, folder: Path, environment: dict[str, str]) -> None:
        self.settings = settings
        self.folder = folder
        own_clock = environment.pop(CLOCK, None) is not None
        self.store = StoreProgram(folder / "store", folder / "store.log", own_clock=own_clock)
        self.programs: dict[str, Program] = {}
        self._environment = {
            **os.environ,
            "SANDMESH_MESH_ID": settings.mesh_id,
            "SANDMESH_REDIS_URL": self.store.url,
            "SANDMESH_LOG_LEVEL": "INFO",
            **environment,
        }

    @property
    def gateways(self) -> list[str]:
        """The gateways' addresses."""
        return [f"unix://{self._socket(name)}" for name in self.programs if name.startswith("gateway")]

    def addresses(self, first: int = 0) -> str:
        """Give the addresses of all gateways as clients write them, beginning with one of choice."""
        gateways = self.gateways
        turn = first % len(gateways)
        return ",".join(gateways[turn:] + gateways[:turn])

    def names(self, prefix: str) -> list[str]:
        """Give the names of the services of a kind."""
        return [name for name in self.programs if name.startswith(prefix)]

    def log(self, name: str) -> str:
        """Give what a service wrote."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    async def open(self, count: int) -> None:
        """Start the store, a driver, and `count` each of allocators, brokers and gateways."""
        await self.store.start()
        self._add("driver1", "driver", "bubblewrap")
        for number in range(1, count + 1):
            self._add(f"allocator{number}", "allocator", "--driver", f"bubblewrap=unix://{self._socket('driver1')}")
        uses = [word for name in self.names("allocator") for word in ("--allocator", f"unix://{self._socket(name)}")]
        for number in range(1, count + 1):
            self._add(f"broker{number}", "broker", *uses)
        uses += [word for name in self.names("broker") for word in ("--broker", f"unix://{self._socket(name)}")]
        for number in range(1, count + 1):
            self._add(f"gateway{number}", "gateway", *uses)
        for kind in ("driver", "allocator", "broker", "gateway"):
            await asyncio.gather(*(self.programs[name].start() for name in self.names(kind)))

    async def close(self) -> None:
        """End everything."""
        for kind in ("gateway", "broker", "allocator", "driver"):
            await asyncio.gather(*(self.programs[name].stop() for name in self.names(kind)))
        await self.store.stop()

    def _add(self, name: str, *arguments: str) -> None:
        listen = ("--listen", f"unix://{self._socket(name)}")
        command = [sys.executable, "-m", "sandmeshd.cli.service", *arguments, *listen]
        self.programs[name] = Program(name, command, self._environment, self.folder / f"{name}.log")

    def _socket(self, name: str) -> Path:
        return self.settings.paths.services / name


@asynccontextmanager
async def open_world(folder: Path, count: int = 1, **environment: str) -> AsyncGenerator[World]:
    """Run a world until the block ends, and leave nothing of it."""
    told = {"state_directory": environment[_STATE]} if _STATE in environment else {}
    settings = MeshSettings.model_validate({"mesh_id": f"fault-{secrets.token_hex(4)}", **told})
    settings.paths.make()
    world = World(settings, folder, environment)
    try:
        await world.open(count)
        yield world
    finally:
        await world.close()
        await sweep_state(settings.paths)
        remove(settings.paths)
