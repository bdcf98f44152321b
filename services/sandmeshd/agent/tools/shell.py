"""The tools that run command lines and programs."""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CapabilityMissing, InvalidArgument
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.processes.programs import Program, Programs

if TYPE_CHECKING:
    from sandmesh._tools import Tool
    from sandmesh._tools.generic import RunShellCommand
    from sandmesh._tools.processes import ListCalls, ListProcesses, StartProcess
    from sandmeshd.agent.calls.toolbox import Handler

_REASON = "END_REASON_"


class ShellCommands:
    """Runs commands, and knows the processes that were started as such for as long as their calls are kept."""

    def __init__(self, programs: Programs, entrypoint: Sequence[str] = (), arguments: Sequence[str] = ()) -> None:
        self.programs = programs
        self._entrypoint = list(entrypoint)
        self._arguments = list(arguments)
        self._program = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
        self._started: WeakKeyDictionary[RunningCall, dict[str, Any]] = WeakKeyDictionary()

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        from sandmesh._tools import generic, processes  # noqa: PLC0415 - unused agents do without

        return {
            generic.RunShellCommand: self.run,
            processes.StartProcess: self.start,
            processes.ListProcesses: self.list,
            processes.ListCalls: self.list_calls,
        }

    async def run(self, command: RunShellCommand, call: RunningCall) -> Outcome:
        """Run a command line to its end; what it left in the background goes on, its output unread."""
        argv = [self._program, "-c", command.command]
        program = Program(argv, command.cwd, command.env or {}, command.timeout, soon=False)
        return await self.programs.run(program, call)

    async def start(self, request: StartProcess, call: RunningCall) -> Outcome:
        """Run a program, or a command line, to its end."""
        argv = [self._program, "-c", request.command] if isinstance(request.command, str) else request.command
        if request.entrypoint:
            argv = [*self._entrypoint, *(argv or self._arguments)]
        size = request.terminal
        terminal = (size["rows"], size["columns"]) if size else None
        command = request.command if isinstance(request.command, str) else " ".join(argv)
        note: dict[str, Any] = {
            "process_id": call.id,
            "command": command[:1000],
            "started": time.time(),
            "terminal": bool(size),
        }
        self._started[call] = note
        outcome = await self.programs.run(
            Program(argv, request.cwd, request.env or {}, request.timeout, terminal), call
        )
        note.update(exit_code=outcome.exit_code, signal=outcome.signal)
        note["reason"] = pb.EndReason.Name(outcome.reason).removeprefix(_REASON)  # type: ignore[arg-type]  # typeshed has no open enums
        return outcome

    async def list(self, _: ListProcesses, call: RunningCall) -> Outcome:
        """Describe the processes, the oldest first."""
        call.started()
        plain = [{**note, "pid": each.pid, "running": not each.finished} for each, note in self._started.items()]
        plain.sort(key=lambda note: note["started"])
        while len(listing := json.dumps({"processes": plain}).encode()) > 1 << 20:
            plain = plain[len(plain) // 4 + 1 :]
        return Outcome(structured=listing)

    async def list_calls(self, _: ListCalls, call: RunningCall) -> Outcome:
        """List the newest calls of the sandbox, of commands and of other tools."""
        call.started()
        return Outcome(structured=b"" if call.past is None else call.past.history.listing())

    def check_start(self, request: StartProcess) -> None:
        """Check that there is a program to be run, and that it may run as the sandbox's own user.

        Raises:
            InvalidArgument: There is none.
            CapabilityMissing: It is to run as another one.
        """
        _check_user(request)
        if not request.entrypoint and not request.command:
            raise InvalidArgument("command: name a program, or a command line", {"argument": "command"})
        if request.entrypoint and isinstance(request.command, str):
            fix = "write it as a list"
            raise InvalidArgument(f"command: the arguments of an entrypoint are no command line: {fix}", {"fix": fix})
        if request.entrypoint and not self._entrypoint and not (request.command or self._arguments):
            fix = "name the program in command, and leave entrypoint out"
            message = f"this sandbox has no image that says what to run (ENTRYPOINT, CMD): {fix}"
            raise InvalidArgument(message, {"argument": "entrypoint", "fix": fix})


def _check_user(request: StartProcess) -> None:
    """Check that a program may run as the sandbox's own user.

    Raises:
        CapabilityMissing: It is to run as another one.
    """
    own = {str(os.getuid())}
    with suppress(KeyError):
        own.add(pwd.getpwuid(os.getuid()).pw_name)
    if request.user is not None and request.user not in own:
        known = " or ".join(sorted(own, reverse=True))
        message = f"programs of this sandbox run as its own user, {known}, not as {request.user!r}: leave user out"
        raise CapabilityMissing(message, {"needs": "user"})
