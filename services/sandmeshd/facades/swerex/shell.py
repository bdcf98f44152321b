"""A shell in a new terminal, in the sandbox: the second part of what `guest` begins."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from sandmeshd.facades.swerex.guest import EXCEPTIONS, Commands, Failure, GuestFiles, Shells, serve

PROMPT = "SHELLPS1PREFIX"
"""The prompt, which is also what clients are told that a command ended with."""

MOST_OUTPUT = 16 << 20
READY_SECONDS = 30.0
PROMPT_SECONDS = 1.0
QUIET_SECONDS = 0.1
SIZE = (24, 80)
CONTROL = re.compile(r"\x1b[@-_][0-?]*[ -/]*[@-~]")


class ShellTerminal:
    """What a shell reads and writes; unread output is kept, the oldest of too much is dropped."""

    def __init__(self) -> None:
        self._pid, self._descriptor = pty.fork()
        if self._pid == 0:
            _become_shell()
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._unread = ""

    def send(self, text: str) -> None:
        """Write to it."""
        data = text.encode()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            raise _ended() from None

    def expect(self, patterns: list[str], timeout: float | None) -> tuple[int, str, re.Match[str]] | None:
        """Return the earliest pattern that its output matches, what came before it and the match; None after `timeout`.

        Raises:
            Failure: The shell has ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        compiled = [re.compile(pattern, re.DOTALL) for pattern in patterns]
        while True:
            matches = [(index, match) for index, one in enumerate(compiled) if (match := one.search(self._unread))]
            if matches:
                index, match = min(matches, key=lambda found: found[1].start())
                start = match.start()
                before, self._unread = self._unread[:start], self._unread[match.end() :]
                return index, before, match
            if not self._fill(deadline):
                return None

    def rest(self) -> str:
        """Return what comes until it is quiet."""
        while self._fill(time.monotonic() + QUIET_SECONDS):
            pass
        text, self._unread = self._unread, ""
        return text

    def kill(self) -> None:
        """Kill the shell and all that it started in its session."""
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if os.getsid(pid) == self._pid:
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the terminal of a shell that was killed."""
        os.close(self._descriptor)
        os.waitpid(self._pid, 0)

    def _fill(self, deadline: float | None) -> bool:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            ready, _, _ = select.select([self._descriptor], [], [], left)
            if not ready:
                return False
            data = os.read(self._descriptor, 1 << 16)
        except (OSError, ValueError):
            data = b""
        if not data:
            raise _ended()
        self._unread = (self._unread + self._decoder.decode(data))[-MOST_OUTPUT:]
        return True


class RuntimeShell:
    """A bash that keeps its state between commands."""

    def __init__(self) -> None:
        self._terminal = ShellTerminal()
        self._lock = threading.Lock()
        self._folder = tempfile.mkdtemp(prefix="swerex-")

    def start(self, sources: list[str], timeout: float) -> str:
        """Read the files that a session begins with; return what they wrote."""
        own = f"export PS1='{PROMPT}' PS2='' PS0=''"
        self._command(own, READY_SECONDS)
        if not sources:
            return ""
        output, _ = self._command("; ".join([*(f"source {path}" for path in sources), own]), timeout)
        return output

    def run(self, body: dict[str, Any]) -> dict[str, Any]:
        """Run a command, or type a line into what runs."""
        with self._lock:
            if body["is_interactive_command"] or body["is_interactive_quit"]:
                return self._type(body)
            _check_syntax(body["command"])
            found = self._run(body)
        code = found["exit_code"]
        if body["check"] == "raise" and code != 0:
            lead = f"{body['error_msg']}: " if body["error_msg"] else ""
            message = f"{lead}{body['command']!r} ended with exit code {code}. Its output:\n{found['output']}"
            raise Failure(EXCEPTIONS + "NonZeroExitCodeError", message)
        return found

    def interrupt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Interrupt what runs; where that does not help, suspend and kill it."""
        patterns = [*body["expect"], PROMPT]
        with self._lock:
            for _ in range(body["n_retry"]):
                self._terminal.send("\x03")
                found = self._terminal.expect(patterns, body["timeout"])
                if found:
                    return self._interrupted(found[1], patterns[found[0]])
            self._terminal.send("\x1a")
            stopped = self._terminal.expect(patterns, body["timeout"])
            self._terminal.send("kill -9 %1\n")
            found = self._terminal.expect(patterns, body["timeout"]) if stopped else None
            if not found or not stopped:
                raise Failure("pexpect.exceptions.TIMEOUT", "the session could not be interrupted")
            return self._interrupted(stopped[1] + found[1], patterns[found[0]])

    def close(self) -> None:
        """End it; a command that runs fails."""
        self._terminal.kill()
        # Its readers are told of its end first.
        with self._lock:
            self._terminal.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _interrupted(self, output: str, matched: str) -> dict[str, Any]:
        output = _clean(output + self._terminal.rest()).replace(PROMPT, "")
        return {"output": output.strip(), "exit_code": 0, "expect_string": matched}

    def _run(self, body: dict[str, Any]) -> dict[str, Any]:
        marks = self._begin(body["command"])
        found = self._after(marks, body["expect"], body["timeout"])
        if found is None:
            message = f"{body['command']!r} did not end within {body['timeout']} s"
            raise Failure(EXCEPTIONS + "CommandTimeoutError", message)
        index, output, match = found
        matched, code = PROMPT, None
        if index < len(body["expect"]):
            matched = body["expect"][index]
            ended = None if body["check"] == "ignore" else self._terminal.expect([marks[1]], PROMPT_SECONDS)
            if ended is None and body["check"] == "raise":
                raise Failure(EXCEPTIONS + "NoExitCodeError", f"{body['command']!r} has not ended: no exit code yet")
            if ended is not None:
                output, code = output + ended[1], int(ended[2][1])
        else:
            code = None if body["check"] == "ignore" else int(match[1])
        if index == len(body["expect"]) or code is not None:
            self._terminal.expect([PROMPT], PROMPT_SECONDS)
        return {"output": _clean(output), "exit_code": code, "expect_string": matched}

    def _command(self, command: str, timeout: float) -> tuple[str, int]:
        """Run a command of this program's own."""
        marks = self._begin(command)
        found = self._after(marks, [], timeout)
        if found is None:
            raise Failure("pexpect.exceptions.TIMEOUT", f"the shell did not begin within {timeout} s")
        self._terminal.expect([PROMPT], PROMPT_SECONDS)
        return _clean(found[1]), int(found[2][1])

    def _begin(self, command: str) -> tuple[str, str]:
        # By a file: a terminal takes lines of 4,095 bytes, and would complete what has a tab.
        name, mark = Path(self._folder, uuid.uuid4().hex), uuid.uuid4().hex
        name.write_text(command, "utf-8")
        line = f"printf '\\036%s\\036' b{mark}; eval \"$(<{name})\"; printf '\\036%s:%s\\036' e{mark} $?\n"
        self._terminal.send(line)
        return f"\x1eb{mark}\x1e", f"\x1ee{mark}:([0-9]+)\x1e"

    def _after(
        self, marks: tuple[str, str], patterns: list[str], timeout: float | None
    ) -> tuple[int, str, re.Match[str]] | None:
        began = time.monotonic()
        if self._terminal.expect([marks[0]], timeout) is None:
            return None
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
        return self._terminal.expect([*patterns, marks[1]], left)

    def _type(self, body: dict[str, Any]) -> dict[str, Any]:
        self._terminal.send(body["command"] + "\n")
        patterns = [*body["expect"], PROMPT]
        found = self._terminal.expect(patterns, body["timeout"])
        if found is None:
            message = f"{body['command']!r} was not answered within {body['timeout']} s"
            raise Failure(EXCEPTIONS + "CommandTimeoutError", message)
        output = _clean(found[1])
        if body["is_interactive_quit"]:
            # Many programs leave the terminal with its echo on.
            self._command("stty -echo", READY_SECONDS)
        else:
            output = output.lstrip().removeprefix(body["command"]).strip()
        return {"output": output, "exit_code": 0, "expect_string": patterns[found[0]]}


def _become_shell() -> None:
    settings = termios.tcgetattr(0)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, settings)
    own = {"PS1": PROMPT, "PS2": "", "PS0": "", "TERM": "dumb"}
    os.execvpe("bash", ["bash"], {**os.environ, **own})


def _check_syntax(command: str) -> None:
    checked = subprocess.run(["bash", "-n"], input=command.encode(), capture_output=True, check=False)
    if checked.returncode:
        stdout, stderr = (data.decode(errors="backslashreplace") for data in (checked.stdout, checked.stderr))
        message = f"bash cannot read the command {command!r}: {stderr}"
        raise Failure(EXCEPTIONS + "BashIncorrectSyntaxError", message, bash_stdout=stdout, bash_stderr=stderr)


def _clean(text: str) -> str:
    return CONTROL.sub("", text).replace("\r\n", "\n")


def _ended() -> Failure:
    return Failure("pexpect.exceptions.EOF", "the shell has ended: create the session again")


def main(idle_seconds: float) -> None:
    """Answer the requests of a door."""
    commands, files, shells = Commands(), GuestFiles(), Shells(RuntimeShell)
    methods = [
        commands.execute,
        files.read_file,
        files.write_file,
        files.upload_part,
        files.upload_end,
        files.upload_drop,
        shells.create_session,
        shells.run_in_session,
        shells.close_session,
    ]
    serve({method.__name__: method for method in methods}, idle_seconds)
