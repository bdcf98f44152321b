"""Programs that calls run, each in its own process group."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.processes.capture import Captured, ProgramCommand, capture
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.processes.pipes import Drain
from sandmeshd.agent.processes.spawner import ProcessEnd, ProcessGroup, ProcessSpawner
from sandmeshd.agent.processes.streams import Pipes, PseudoTerminal, Streams

_STOPPED: Final[dict[int, str]] = {pb.END_REASON_TIMED_OUT: "ran out of time", pb.END_REASON_CANCELLED: "was cancelled"}

_SHELL_KILLED: Final = 128 + signal.SIGKILL


@dataclass(frozen=True)
class Program:
    """A program, its directory, variables and timeout; `terminal` is rows and columns, None for pipes.

    Callers that follow what they started learn `soon` that it has started, others with what comes next.
    """

    argv: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float | None = None
    terminal: tuple[int, int] | None = None
    soon: bool = True


class Programs:
    """Runs programs for calls."""

    def __init__(
        self, processes: ProcessSpawner, workspace: str, environment: Mapping[str, str], memory: Memory | None = None
    ) -> None:
        self._processes = processes
        self.memory = memory or Memory()
        self.workspace = workspace
        self._environment = dict(environment)
        self._drain = Drain()
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the pipes of background processes."""
        self._drain.close()
        os.close(self._null)

    def variable(self, name: str) -> str:
        """Return a variable that all programs have, "" where they have none of the name."""
        return self._environment.get(name, "")

    async def run(self, program: Program, call: RunningCall) -> Outcome:
        """Run a program to its end, with its output and input those of the call."""
        call.stop_after(program.timeout)
        env = self._variables(program, call)
        streams = self._streams(program)
        kills = self.memory.oom_kills()
        try:
            process = self._start(program, call, streams, env)
            ended = await _follow(call, process, streams, soon=program.soon)
        finally:
            streams.close()
        if self.memory.oom_kills() > kills and _was_oom_killed(call, ended):
            return await self._out_of_memory(call, ended)
        return await _outcome(call, ended)

    async def capture(self, argv: Sequence[str], env: Mapping[str, str], call: RunningCall | None) -> Captured:
        """Run a program in the workspace for what reads its output itself: a call, or None for no one's.

        Raises:
            ToolFailure: It wrote too much, or no process could be started.
        """
        command = ProgramCommand(argv, self.workspace, {**self._environment, **env})
        return await capture(self._processes, command, call)

    def launch(self, argv: Sequence[str], output: int) -> ProcessGroup:
        """Start a program in the workspace that no call waits for; `output` is the descriptor that it writes to."""
        return self._processes.spawn(argv, (self._null, output, output), cwd=self.workspace, env=self._environment)

    async def _out_of_memory(self, call: RunningCall, ended: ProcessEnd) -> Outcome:
        message = self.memory.out_of_memory_message()
        await call.text(message + "\n")
        return Outcome(True, pb.END_REASON_OUT_OF_MEMORY, ended.exit_code, ended.signal, message)

    def _variables(self, program: Program, call: RunningCall) -> dict[str, str]:
        env = {**self._environment, **(call.place.variables if call.place else {}), **program.env}
        bad = [name for name, value in env.items() if not name or "=" in name or "\0" in name + value]
        if bad or "\0" in "".join(program.argv) + (program.cwd or ""):
            raise ToolFailure(
                "The command, its directory and its variables must not have zero bytes, nor names an '='."
            )
        if program.terminal is not None:
            env.setdefault("TERM", "xterm-256color")
        return env

    def _streams(self, program: Program) -> Pipes | PseudoTerminal:
        if program.terminal is None:
            return Pipes(self._drain, self._null)
        try:
            return PseudoTerminal(*program.terminal)
        except OSError as error:
            raise ToolFailure(f"The sandbox has no free terminal: {error.strerror}.") from None

    def _start(self, program: Program, call: RunningCall, streams: Streams, env: Mapping[str, str]) -> ProcessGroup:
        cwd = os.path.join(self.workspace, program.cwd or "")  # noqa: PTH118 - pathlib would normalize the path
        descriptors = streams.descriptors(call)
        process = self._processes.spawn(program.argv, descriptors, cwd=cwd, env=env, terminal=streams.terminal)
        streams.launched(call)
        return process


async def _follow(
    call: RunningCall, process: ProcessGroup, streams: Pipes | PseudoTerminal, *, soon: bool
) -> ProcessEnd:
    with call.stopping(process.stop, process.signal):
        call.started(await process.started, soon=soon)
        # Only now: the program may have written before its start was reported.
        streams.follow(call)
        with call.resizing(streams.resize) if isinstance(streams, PseudoTerminal) else nullcontext():
            ended = await asyncio.shield(process.ended)
    await streams.finish(call)
    return ended


def _was_oom_killed(call: RunningCall, ended: ProcessEnd) -> bool:
    # A shell whose child was killed reports that by its exit code.
    by_shell = ended.exit_code == _SHELL_KILLED
    by_caller = call.stop_reason is not None or signal.SIGKILL in call.signals_sent
    return not by_caller and (by_shell or ended.signal == signal.SIGKILL)


async def _outcome(call: RunningCall, ended: ProcessEnd) -> Outcome:
    reason, message = _explain(call, ended)
    if reason != pb.END_REASON_EXITED or ended.failure:
        await call.text(message + "\n")
    failed = ended.exit_code != 0
    return Outcome(failed, reason, ended.exit_code, ended.signal, message)


def _explain(call: RunningCall, ended: ProcessEnd) -> tuple[int, str]:
    if ended.failure:
        return call.stop_reason or pb.END_REASON_EXITED, ended.failure
    if ended.signal is None:
        message = f"The command ended with exit code {ended.exit_code}." if ended.exit_code else ""
        return pb.END_REASON_EXITED, message
    if call.stop_reason is not None and ended.signal == signal.SIGKILL:
        return call.stop_reason, f"The command {_STOPPED[call.stop_reason]} and was killed."
    name = signal.strsignal(ended.signal) or "unknown"
    reason = pb.END_REASON_EXITED if ended.signal in call.signals_sent else pb.END_REASON_KILLED
    return reason, f"Signal {ended.signal} ({name}) ended the command."
