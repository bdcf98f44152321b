"""The processes of user code, which the zygote starts at the agent's request."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sandmeshd.agent.calls.answer import ToolFailure

_LARGEST_MESSAGE: Final = 65_536


@dataclass(frozen=True)
class Limits:
    """The limits of user code; 0 is no limit. `processes` counts the threads of all processes together."""

    processes: int = 512
    file_bytes: int = 0
    user: int = 0
    """The uid of the processes, where that isolates them; 0: the zygote's own."""


@dataclass(frozen=True)
class Ended:
    """How a process ended. `failure` is the reason why its program could not be run at all."""

    exit_code: int | None = None
    signal: int | None = None
    failure: str = ""


class Process:
    """A process group of user code."""

    def __init__(self, processes: Processes, number: int) -> None:
        loop = asyncio.get_running_loop()
        self._processes = processes
        self._number = number
        self.started: asyncio.Future[int] = loop.create_future()
        """Its pid as user code sees it; ToolFailure where it could not be started."""
        self.ended: asyncio.Future[Ended] = loop.create_future()

    def signal(self, number: int) -> None:
        """Send a signal to the group, unless it is gone."""
        if not self.ended.done():
            self._processes.send({"op": "signal", "id": self._number, "number": number})

    def kill(self) -> None:
        """Kill the group."""
        self.signal(signal.SIGKILL)


class Processes:
    """The agent's side of the zygote's control socket."""

    def __init__(self, control: socket.socket, limits: Limits) -> None:
        control.setblocking(False)
        self._control = control
        self._limits = {"processes": limits.processes, "file_bytes": limits.file_bytes, "user": limits.user}
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, Process] = {}
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._echoes: dict[int, asyncio.Future[None]] = {}
        self._last = 0
        self.up: asyncio.Future[None] = self._loop.create_future()
        """Done when the namespaces are ready; OSError where they could not be created."""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the zygote is gone, and user code with it."""
        self._loop.add_reader(control, self._readable)

    def close(self) -> None:
        """Close the socket to the zygote, which ends every process of user code."""
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control)
            self._loop.remove_writer(self._control)
            self._control.close()

    def fork_kernel(self, fds: Sequence[int], cwd: str) -> Process:
        """Start a kernel with its socket, standard output and standard error."""
        return self._start({"op": "fork", "cwd": cwd}, fds)

    def spawn(
        self,
        argv: Sequence[str],
        fds: Sequence[int],
        *,
        cwd: str,
        env: Mapping[str, str],
        terminal: bool = False,
        whole: bool = False,
    ) -> Process:
        """Start a program with its three standard descriptors; with `terminal` they are one.

        With `whole` its group is killed at its end: no background process stays.
        """
        request = {"op": "spawn", "argv": list(argv), "cwd": cwd, "env": dict(env), "terminal": terminal}
        return self._start({**request, "whole": whole}, fds)

    async def settled(self) -> None:
        """Wait until every earlier request for a signal was carried out."""
        if not self.lost.done():
            self._last += 1
            self._echoes[self._last] = self._loop.create_future()
            self.send({"op": "echo", "id": self._last})
            await self._echoes[self._last]

    def _start(self, request: dict[str, Any], fds: Sequence[int]) -> Process:
        self._last += 1
        process = self._running[self._last] = Process(self, self._last)
        self.send({**request, "id": self._last, "limits": self._limits}, fds)
        return process

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a request; the descriptors are duplicated and remain the caller's."""
        if self.lost.done():
            return
        data = json.dumps(message).encode()
        copies = [os.dup(fd) for fd in fds]
        if len(data) > _LARGEST_MESSAGE:
            copies.insert(0, _memory_file(data))
            data = b'{"large": true}'
        self._unsent.append((data, copies))
        self._flush()

    def _flush(self) -> None:
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                socket.send_fds(self._control, [data], fds)
            except BlockingIOError:
                self._loop.add_writer(self._control, self._flush)
                return
            except OSError:
                # The zygote is gone; its last reports may still be readable, and their end is handled there.
                pass
            self._unsent.popleft()
            _close(fds)
        self._loop.remove_writer(self._control)

    def _readable(self) -> None:
        # Until there is nothing more: a zygote that dies with unread requests causes a reset, which comes once, before
        # its last reports, and after which the event loop reports nothing.
        while True:
            try:
                data = self._control.recv(_LARGEST_MESSAGE)
            except ConnectionResetError:
                continue
            except BlockingIOError:
                return
            if not data:
                self._zygote_lost()
                return
            self._handle(json.loads(data))

    def _zygote_lost(self) -> None:
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        for _, fds in self._unsent:
            _close(fds)
        self._unsent.clear()
        if not self.up.done():
            self.up.set_exception(OSError("the first process of user code's namespaces died"))
        if not self.lost.done():
            self.lost.set_result(None)

    def _handle(self, report: dict[str, Any]) -> None:
        if "up" in report:
            self.up.set_result(None)
        elif "echo" in report:
            self._echoes.pop(report["echo"]).set_result(None)
        elif "error" in report:
            self.up.set_exception(OSError(report["error"]))
        elif "started" in report:
            self._running[report["started"]].started.set_result(report["pid"])
        elif "refused" in report:
            process = self._running.pop(report["refused"])
            process.started.set_exception(ToolFailure(refusal(report["errno"])))
        elif "ended" in report:
            process = self._running.pop(report["ended"])
            process.ended.set_result(read_end(report["status"], report["failure"]))


def _memory_file(data: bytes) -> int:
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    return fd


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def refusal(number: int) -> str:
    """Return why no process could be started, and what to do."""
    if number == errno.EAGAIN:
        return (
            "No process could be started: the sandbox has reached its limit of processes. "
            "Cancel or signal the calls whose processes are no longer needed, or delete the sandbox."
        )
    if number == errno.ENOSPC:
        return (
            "No kernel could be started: there is no space in the home directory for its files. "
            "Remove files with a shell command, from the home directory first, and run the cell again."
        )
    return f"No process could be started: {os.strerror(number)}."


def read_end(status: int, failure: Mapping[str, Any] | None) -> Ended:
    """Return how a process ended, from its wait status and what failed before the program ran."""
    if failure is not None:
        return Ended(failure=_explain(failure["step"], failure["errno"]))
    code = os.waitstatus_to_exitcode(status)
    return Ended(exit_code=code) if code >= 0 else Ended(signal=-code)


def _explain(step: str, number: int) -> str:
    if step == "directory":
        return f"The working directory cannot be entered: {os.strerror(number)}."
    if step == "program" and number == errno.E2BIG:
        return "The command or its environment is too long: write it to a file and run that."
    if step == "program":
        return f"The program cannot be run: {os.strerror(number)}."
    return f"The process could not be set up ({step}): {os.strerror(number)}."
