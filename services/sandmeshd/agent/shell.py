"""The tool that runs command lines."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.answers import ToolFailure
from sandmeshd.agent.call import Call, Outcome
from sandmeshd.agent.memory import Memory
from sandmeshd.agent.pipes import Drain, OutputPipe
from sandmeshd.agent.processes import Ended, Process, Processes

if TYPE_CHECKING:
    from sandmesh.tools import RunShellCommand

_WHY: Final[dict[int, str]] = {pb.END_REASON_TIMED_OUT: "ran out of time", pb.END_REASON_CANCELLED: "was cancelled"}

SHELL_KILLED: Final = 128 + signal.SIGKILL


class Shell:
    """Runs each command in a process group of its own."""

    def __init__(
        self, processes: Processes, workspace: str, environment: Mapping[str, str], memory: Memory | None = None
    ) -> None:
        self._processes = processes
        self._memory = memory or Memory()
        self._workspace = workspace
        self._environment = dict(environment)
        self._drain = Drain()
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._program = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"

    def close(self) -> None:
        """Let go of what background processes still write to."""
        self._drain.close()
        os.close(self._nothing)

    async def run(self, command: RunShellCommand, call: Call) -> Outcome:
        """Run a command to its end; what it left in the background goes on, its output unread."""
        pipes = OutputPipe(pb.STREAM_STDOUT), OutputPipe(pb.STREAM_STDERR)
        kills = self._memory.kills()
        try:
            process = self._start(command, call, pipes)
            call.started(await process.started)
            ended = await self._follow(command, call, process, pipes)
        finally:
            for pipe in pipes:
                pipe.close_writer()
                self._drain.take(pipe)
                pipe.close()
        if self._memory.kills() > kills and _is_victim(call, ended):
            return await self._out_of_memory(call, ended)
        return await _outcome(call, ended)

    async def _out_of_memory(self, call: Call, ended: Ended) -> Outcome:
        message = self._memory.ran_out()
        await call.text(message + "\n")
        return Outcome(True, pb.END_REASON_OUT_OF_MEMORY, ended.exit_code, ended.signal, message)

    def _start(self, command: RunShellCommand, call: Call, pipes: tuple[OutputPipe, OutputPipe]) -> Process:
        env = {**self._environment, **(command.env or {})}
        bad = [name for name, value in env.items() if not name or "=" in name or "\0" in name + value]
        if bad or "\0" in command.command + (command.cwd or ""):
            raise ToolFailure("The command, its directory and its variables have no zero bytes, and names no '='.")
        source = self._nothing if call.input is None else call.input.reader
        cwd = os.path.join(self._workspace, command.cwd or "")  # noqa: PTH118 - pathlib would change what was asked for
        fds = [source, pipes[0].writer, pipes[1].writer]
        process = self._processes.spawn([self._program, "-c", command.command], fds, cwd=cwd, env=env)
        if call.input is not None:
            call.input.close_reader()
        for pipe in pipes:
            pipe.close_writer()
        return process

    async def _follow(
        self, command: RunShellCommand, call: Call, process: Process, pipes: tuple[OutputPipe, OutputPipe]
    ) -> Ended:
        loop = asyncio.get_running_loop()
        alarm = None
        if command.timeout is not None:
            alarm = loop.call_later(command.timeout, call.stop, pb.END_REASON_TIMED_OUT)
        for pipe in pipes:
            pipe.give_to(call)
        with call.stopping(process.kill, process.signal):
            ended = await asyncio.shield(process.ended)
        if alarm is not None:
            alarm.cancel()
        for pipe in pipes:
            await pipe.drain(call)
        return ended


def _is_victim(call: Call, ended: Ended) -> bool:
    # A shell that waited for what was killed says so by its exit code.
    by_shell = ended.exit_code == SHELL_KILLED
    return call.stop_reason is None and (by_shell or ended.signal == signal.SIGKILL)


async def _outcome(call: Call, ended: Ended) -> Outcome:
    reason, message = _explain(call, ended)
    if reason != pb.END_REASON_EXITED or ended.failure:
        await call.text(message + "\n")
    failed = ended.exit_code != 0
    return Outcome(failed, reason, ended.exit_code, ended.signal, message)


def _explain(call: Call, ended: Ended) -> tuple[int, str]:
    if ended.failure:
        return pb.END_REASON_EXITED, ended.failure
    if ended.signal is None:
        told = f"The command ended with exit code {ended.exit_code}." if ended.exit_code else ""
        return pb.END_REASON_EXITED, told
    if call.stop_reason is not None and ended.signal == signal.SIGKILL:
        return call.stop_reason, f"The command {_WHY[call.stop_reason]} and was killed."
    name = signal.strsignal(ended.signal) or "unknown"
    reason = pb.END_REASON_EXITED if ended.signal in call.signals_sent else pb.END_REASON_KILLED
    return reason, f"Signal {ended.signal} ({name}) ended the command."
