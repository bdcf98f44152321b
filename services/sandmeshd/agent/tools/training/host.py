"""The process that imports one environment and forks its instances: its start, its requests, its end.

It runs as user code does, with the template's own Python. What it sends is not trusted: a violation of the protocol,
which `sandmeshd.agent.userland.training.host` describes, ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from sandmeshd.agent.mcp.manager.stderr_tail import StderrTail
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.processes.spawner import ProcessSpawner
from sandmeshd.agent.tools.training.failures import FAILED, EpisodeFailure

PROGRAM: Final = str(Path(__file__).parents[2] / "userland" / "training" / "__main__.py")
START_SECONDS: Final = 120.0
_MOST_BYTES: Final = 1 << 16
_PART: Final = 1 << 15
_ROOM_SECONDS: Final = 0.01

Ended = Callable[[int | None], None]
"""Is called with an instance's wait status, None if it never ran or its host died."""


@dataclass(frozen=True)
class HostContext:
    """Where the process runs: the processes of user code, the template's Python, its variables and the workspace."""

    processes: ProcessSpawner
    python: str
    environment: Mapping[str, str]
    workspace: str
    memory: Memory


@dataclass(frozen=True)
class EnvironmentSource:
    """An environment: its name, its class as "module:Class", and the source of the module if that is not installed."""

    name: str
    target: str
    source: str


class EnvironmentHost:
    """A running process. `clock` is the library that gives each instance its own clock; "" for none."""

    def __init__(self, context: HostContext, source: EnvironmentSource, clock: str = "") -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        self._stderr = StderrTail()
        # As with -I, but for the hash seed, which that ignores.
        argv = [context.python, "-s", "-P", PROGRAM]
        with theirs:
            fds = [theirs.fileno(), self._stderr.writer, self._stderr.writer]
            spawn = partial(context.processes.spawn, cwd=context.workspace, env=_variables(context, clock))
            self._process = spawn(argv, fds, whole=True)
        self._stderr.close_writer()
        self._instances: dict[int, Ended] = {}
        self._up: asyncio.Future[None] = self._loop.create_future()
        self.alive = True
        self._loop.add_reader(self._control, self._readable)

    async def open(self) -> None:
        """Wait until the environment is imported.

        Raises:
            EpisodeFailure: It cannot be imported.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._process.started
                data = self._source.source.encode()
                about = {"name": self._source.name, "target": self._source.target, "source_bytes": len(data)}
                await self._send(json.dumps(about).encode())
                for start in range(0, len(data), _PART):
                    await self._send(data[start : start + _PART])
                await asyncio.shield(self._up)
        except TimeoutError:
            self.end()
            message = f"The environment {self._source.name!r} was not imported within {START_SECONDS:g} s."
            raise EpisodeFailure(FAILED, message, fault="limit", last_words=self._stderr.lines()) from None
        except BaseException:
            self.end()
            raise

    async def start(self, number: int, channel: int, output: int, ended: Ended) -> None:
        """Fork an instance, which has these descriptors; `ended` is called once it has ended."""
        self._instances[number] = ended
        await self._send(json.dumps({"start": number}).encode(), [channel, output])

    def kill(self, number: int) -> None:
        """Kill an instance and what it started."""
        if self.alive and number in self._instances:
            self._loop.create_task(self._send(json.dumps({"kill": number}).encode()))

    def end(self) -> None:
        """End the process and all instances."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control)
        self._control.close()
        self._process.kill()
        self._stderr.close()
        if not self._up.done():
            lines = self._stderr.lines()
            message = f"The environment {self._source.name!r} could not be imported: its process ended."
            self._up.set_exception(EpisodeFailure(FAILED, message, last_words=lines))
            self._up.exception()
        for ended in list(self._instances.values()):
            ended(None)
        self._instances.clear()

    async def _send(self, data: bytes, fds: list[int] | None = None) -> None:
        while self.alive:
            try:
                socket.send_fds(self._control, [data], fds or [])
            except BlockingIOError:
                await asyncio.sleep(_ROOM_SECONDS)
            except OSError:
                self.end()
            else:
                return

    def _readable(self) -> None:
        try:
            data = self._control.recv(_MOST_BYTES)
            if data:
                self._take(json.loads(data))
        except BlockingIOError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
            data = b""
        if not data:
            self.end()

    def _take(self, message: dict[str, Any]) -> None:
        if "up" in message:
            if not self._up.done():
                self._up.set_result(None)
        elif "error" in message:
            lines = str(message["error"]).splitlines()[-12:]
            refusal = f"The environment {self._source.name!r} cannot be imported: {lines[-1] if lines else ''}"
            if not self._up.done():
                self._up.set_exception(EpisodeFailure(FAILED, refusal, last_words=lines))
        else:
            ended = self._instances.pop(int(message["ended"]), None)
            if ended is not None:
                ended(message["status"] if isinstance(message["status"], int) else None)


def find_clock_library() -> str:
    """Return the path of libfaketime; "" where the sandbox has none."""
    return str(next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), ""))


def _variables(context: HostContext, clock: str) -> dict[str, str]:
    own = {name: value for name, value in context.environment.items() if not name.startswith("PYTHON")}
    own["PYTHONHASHSEED"] = "0"
    if clock:
        # Timeouts keep to the real time; the variable is read at each call, as an instance sets it after its fork.
        settings = {"FAKETIME": "+0", "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        own.update(settings, LD_PRELOAD=clock)
    return own


def describe(status: int | None) -> tuple[str, int | None]:
    """Return how an instance ended, and the signal that ended it."""
    if status is None:
        return "it could not be started, or what started it died", None
    code = os.waitstatus_to_exitcode(status)
    return (f"exit code {code}", None) if code >= 0 else (f"signal {-code}", -code)
