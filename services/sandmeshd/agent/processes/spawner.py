"""The processes of user code, which the zygote starts at the agent's request."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.scarcity import scarcity
from sandmeshd.agent.processes.requests import LARGEST_MESSAGE, RequestQueue

_START_SECONDS: Final = 1.0
_END_SECONDS: Final = 10.0
"""How long the report that a process has started, or ended, may take once it is to be killed."""


@dataclass(frozen=True)
class ProcessLimits:
    """The limits of user code; 0: unlimited. `processes` counts the threads of all processes together."""

    processes: int = 512
    file_bytes: int = 0
    user: int = 0
    """The uid of the processes, where that isolates them; 0: the zygote's own."""
    descriptors: int = 0
    """Of each process; also of those that all processes of the uid have on their way through sockets together."""
    signals: int = 0
    """Of those that wait for all processes together."""
    group: int = 0
    """The gid of the processes with `user`; 0: that number."""


@dataclass(frozen=True)
class ProcessEnd:
    """How a process ended. `failure` is the reason why its program could not be run at all."""

    exit_code: int | None = None
    signal: int | None = None
    failure: str = ""


class ProcessGroup:
    """A process group of user code."""

    def __init__(self, processes: ProcessSpawner, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.processes = processes
        """What started it."""
        self.number = number
        """Its id in the zygote's requests and reports."""
        self.started: asyncio.Future[int] = loop.create_future()
        """Its pid as user code sees it; ToolFailure where it could not be started."""
        self.ended: asyncio.Future[ProcessEnd] = loop.create_future()

    def signal(self, number: int) -> None:
        """Send a signal to the group, unless it is gone."""
        if not self.ended.done():
            self.processes.send_signal(self.number, number)

    def kill(self) -> None:
        """Kill the group."""
        self.signal(signal.SIGKILL)

    def stop(self) -> None:
        """Kill the group, and wait no longer for its reports than they take where the zygote is well."""
        self.kill()
        loop = asyncio.get_running_loop()
        loop.call_later(_START_SECONDS, self.refuse, "No process was started: the sandbox's first process is busy.")
        loop.call_later(_END_SECONDS, self.end, ProcessEnd(failure="The process was killed, and has not ended yet."))

    def start(self, pid: int) -> None:
        """Record its pid, unless it is no longer awaited."""
        if not self.started.done():
            self.started.set_result(pid)

    def refuse(self, why: str) -> None:
        """Record why it was not started, unless it was."""
        if not self.started.done():
            self.started.set_exception(ToolFailure(why))
            # The waiter may have been cancelled: that is not an error to log.
            self.started.exception()

    def end(self, ended: ProcessEnd) -> None:
        """Record how it ended, unless that is known or no longer awaited."""
        if not self.ended.done():
            self.ended.set_result(ended)


class ProcessSpawner:
    """The agent's side of the zygote's control socket."""

    def __init__(self, control: socket.socket, limits: ProcessLimits) -> None:
        control.setblocking(False)
        self._control = control
        self._limits = asdict(limits)
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, ProcessGroup] = {}
        self._requests = RequestQueue(control)
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
            self._requests.close()
            self._control.close()

    def fork_kernel(self, fds: Sequence[int], cwd: str) -> ProcessGroup:
        """Start a kernel with its socket, standard output and standard error."""
        return self._start({"op": "fork", "cwd": cwd}, fds)

    def continue_kernel(self, fds: Sequence[int], cwd: str, environment: Mapping[str, str]) -> ProcessGroup:
        """Start a kernel that continues from saved memory, whose file is the last descriptor.

        `environment` is what differs here from where the memory was saved.
        """
        return self._start({"op": "fork", "cwd": cwd, "continues": True, "environment": dict(environment)}, fds)

    def spawn(
        self,
        argv: Sequence[str],
        fds: Sequence[int],
        *,
        cwd: str,
        env: Mapping[str, str],
        terminal: bool = False,
        whole: bool = False,
    ) -> ProcessGroup:
        """Start a program with its three standard descriptors; with `terminal` they are one.

        With `whole` its group is killed at its end: no background process stays.
        """
        request = {"op": "spawn", "argv": list(argv), "cwd": cwd, "env": dict(env), "terminal": terminal}
        return self._start({**request, "whole": whole}, fds)

    def expect(self) -> ProcessGroup:
        """Return a process that does not exist yet: a kernel forks it, then `adopt` or `forget` follows."""
        self._last += 1
        process = self._running[self._last] = ProcessGroup(self, self._last)
        return process

    def adopt(self, process: ProcessGroup, pid: int) -> None:
        """Take an expected process under the zygote's care by its pid as user code sees it."""
        fail = partial(self._fail_start, process.number)
        self._send(process.number, {"op": "adopt", "id": process.number, "pid": pid}, (), fail)

    def forget(self, process: ProcessGroup) -> None:
        """Expect a process no longer."""
        self._running.pop(process.number, None)
        process.end(ProcessEnd(failure="The process was not forked."))

    async def settled(self) -> None:
        """Wait until every earlier request for a signal was carried out.

        Raises:
            ToolFailure: The request could not be sent.
        """
        if not self.lost.done():
            self._last += 1
            number = self._last
            echo = self._echoes[number] = self._loop.create_future()
            fail = partial(self._fail_echo, number)
            self._send(number, {"op": "echo", "id": number}, (), fail)
            await asyncio.shield(echo)

    def _fail_echo(self, number: int, code: int) -> None:
        self._echoes.pop(number).set_exception(_unsent(code))

    def send_signal(self, number: int, signal_number: int) -> None:
        """Send a signal to a process; one that cannot be sent ends the wait for the process."""
        process = self._running.get(number)
        if process is not None:
            message = {"op": "signal", "id": number, "number": signal_number}
            self._send(number, message, (), lambda code: process.end(ProcessEnd(failure=str(_unsent(code)))))

    def _start(self, request: dict[str, Any], fds: Sequence[int]) -> ProcessGroup:
        self._last += 1
        number = self._last
        process = self._running[number] = ProcessGroup(self, number)
        fail = partial(self._fail_start, number)
        self._send(number, {**request, "id": number, "limits": self._limits}, fds, fail)
        return process

    def _fail_start(self, number: int, code: int) -> None:
        self._running.pop(number).refuse(refusal(code))

    def _send(self, number: int, message: dict[str, Any], fds: Sequence[int], fail: Callable[[int], None]) -> None:
        if not self.lost.done():
            self._requests.send(number, message, fds, fail)

    def _readable(self) -> None:
        # Until there is nothing more: a zygote that dies with unread requests causes a reset, which comes once, before
        # its last reports, and after which the event loop reports nothing.
        while True:
            try:
                data = self._control.recv(LARGEST_MESSAGE)
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
        self._requests.close()
        if not self.up.done():
            self.up.set_exception(OSError("the first process of user code's namespaces died"))
        if not self.lost.done():
            self.lost.set_result(None)

    def _handle(self, report: dict[str, Any]) -> None:
        if "up" in report:
            self.up.set_result(None)
        elif "echo" in report:
            if (echo := self._echoes.pop(report["echo"], None)) is not None:
                echo.set_result(None)
        elif "error" in report:
            self.up.set_exception(OSError(report["error"]))
        elif "started" in report:
            self._running[report["started"]].start(report["pid"])
        elif "refused" in report:
            number, step = report["errno"], report["step"]
            why = _explain(step, number) if step == "directory" else refusal(number)
            self._running.pop(report["refused"]).refuse(why)
        elif "ended" in report:
            self._running.pop(report["ended"]).end(read_end(report["status"], report["failure"]))


def _unsent(number: int) -> ToolFailure:
    return ToolFailure(f"The sandbox's first process could not be reached: {scarcity(number) or os.strerror(number)}.")


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
    return f"No process could be started: {scarcity(number) or os.strerror(number)}."


def read_end(status: int, failure: Mapping[str, Any] | None) -> ProcessEnd:
    """Return how a process ended, from its wait status and what failed before the program ran."""
    if failure is not None:
        return ProcessEnd(failure=_explain(failure["step"], failure["errno"]))
    code = os.waitstatus_to_exitcode(status)
    return ProcessEnd(exit_code=code) if code >= 0 else ProcessEnd(signal=-code)


def _explain(step: str, number: int) -> str:
    if step == "directory":
        return f"The working directory cannot be entered: {os.strerror(number)}."
    if step == "program" and number == errno.E2BIG:
        return "The command or its environment is too long: write it to a file and run that."
    if step == "program":
        return f"The program cannot be run: {os.strerror(number)}."
    return f"The process could not be set up ({step}): {os.strerror(number)}."
