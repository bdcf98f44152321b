"""A session of bash as a kernel of the sandbox: the program between the agent's frames and one interactive bash.

`python -P __main__.py languages.bash FD`: FD is the kernel's channel. bash reads the cells from a pipe, and is
interactive without a terminal, so that an interrupt ends the whole cell and no more. When bash exits, so does this.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from typing import Final

from sandmeshd.agent.userland.python import exception_report, kernel_protocol, output

_STATUS_FD: Final = 63
_ERRORS_FD: Final = 62
_LONGEST_INLINE: Final = 4096
"""bash reads a pipe byte by byte: longer cells come by a file."""
_START: Final = f"exec 2>&{_ERRORS_FD} {_ERRORS_FD}>&-; set +H +o history; unset HISTFILE\n"
"""What bash says about itself before goes nowhere: that it has no terminal."""


def run(fds: list[int], site: str) -> None:
    """Serve cells until the agent goes; what keeps bash from starting is told as the end of no cell."""
    sys.path.remove(site)
    channel = output.KernelSocket(socket.socket(fileno=os.dup(fds[0])))
    try:
        session = _BashCells(channel)
    except OSError as error:
        channel.end(kernel_protocol.FAILED, f"bash cannot be run: {error.strerror}")
        os._exit(1)
    channel.ready()
    while True:
        session.serve()


class _BashCells:
    """Cells go to bash, their exit statuses to the agent."""

    def __init__(self, channel: output.KernelSocket) -> None:
        self._channel = channel
        self._cell = 0
        self._running = self._ended = False
        self._buffer = b""
        commands, self._commands = os.pipe()
        self._statuses, self._report = os.pipe()
        # By numbers that programs do not use, and that this process's own children would not get otherwise.
        os.dup2(self._report, _STATUS_FD)
        os.dup2(2, _ERRORS_FD)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        nothing = os.open(os.devnull, os.O_WRONLY)
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "--noediting", "-i"],  # noqa: S607 - the sandbox's own
            stdin=commands,
            stderr=nothing,
            pass_fds=(_STATUS_FD, _ERRORS_FD),
            env={**os.environ, "PS1": "", "PS2": ""},
        )
        for fd in (commands, nothing, _STATUS_FD, _ERRORS_FD):
            os.close(fd)
        signal.signal(signal.SIGINT, self._interrupted)
        self._write(_START)
        threading.Thread(target=self._wait, daemon=True).start()

    def serve(self) -> None:
        """Run the next cell."""
        kind, payload, input_fd = self._channel.receive()
        if kind not in {kernel_protocol.RUN, kernel_protocol.RUN_WITH_INPUT}:
            return
        self._cell += 1
        self._running = True
        if input_fd is not None:
            # Nothing tells when a command wants input: it gets none.
            os.close(input_fd)
        code = payload.replace(b"\0", b"").decode("utf-8", "surrogateescape")
        file = None if len(payload) <= _LONGEST_INLINE else _file(payload)
        quoted = shlex.quote(code) if file is None else f'"$(< /proc/{os.getpid()}/fd/{file})"'
        self._write(f"eval -- {quoted} </dev/null\n{self._asking}")
        status = self._next_status()
        self._running = False
        if file is not None:
            os.close(file)
        if self._ended:
            self._channel.end(kernel_protocol.LEAVES | (kernel_protocol.FAILED if status else 0), _line(status))
            os._exit(status)
        if not status:
            self._channel.end(0, "")
            return
        report = exception_report.encode(type("ExitStatus", (), {}), str(status), [])
        self._channel.end(kernel_protocol.FAILED, _line(status), report)

    @property
    def _asking(self) -> str:
        return f'printf "%s %s\\n" {self._cell} "$?" >&{_STATUS_FD}\n'

    def _next_status(self) -> int:
        """Wait until the cell's exit status, or bash's own, is known."""
        while True:
            *lines, self._buffer = self._buffer.split(b"\n")
            for line in lines:
                cell, _, status = line.partition(b" ")
                if self._ended or cell == b"%d" % self._cell:
                    return int(status)
            self._buffer += os.read(self._statuses, 4096)

    def _interrupted(self, number: int, frame: object) -> None:
        """Ask for the status again: bash, which got the signal too, may have dropped the request."""
        self._write(self._asking)

    def _write(self, text: str) -> None:
        view = memoryview(text.encode("utf-8", "surrogateescape"))
        try:
            while view:
                view = view[os.write(self._commands, view) :]
        except BrokenPipeError:
            # It has exited, which ends the cell.
            return

    def _wait(self) -> None:
        status = self._bash.wait()
        if status < 0:
            # As it was killed, so is this: the agent reports that.
            os.kill(os.getpid(), -status)
        if status < 0 or not self._running:
            os._exit(status % 128)
        self._ended = True
        os.write(self._report, b"0 %d\n" % status)


def _line(status: int) -> str:
    return f"The code ended with exit status {status}." if status else ""


def _file(payload: bytes) -> int:
    fd = os.memfd_create("cell")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(payload)
    return fd
