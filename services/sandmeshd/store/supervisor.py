"""Runs a server that ends with its owner; started as a program, with the server's command line as arguments.

The owner holds the other end of standard input, so that its end, of whatever kind, closes it. The server gets a death
signal besides, for the case that this process is killed. Only the standard library: it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_SHUTDOWN_SECONDS = 5.0


def main(command: list[str]) -> int:
    """Run the server until it ends or standard input does; give its exit status."""
    parent = os.getpid()
    server = os.fork()
    if server == 0:
        _become(command, parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    watch = os.pidfd_open(server)
    # Either the server ended, or the owner let go: standard input is never written to.
    select.select([watch, 0], [], [])
    signal.pidfd_send_signal(watch, signal.SIGTERM)
    if not select.select([watch], [], [], _SHUTDOWN_SECONDS)[0]:
        signal.pidfd_send_signal(watch, signal.SIGKILL)
    _, status = os.waitpid(server, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _become(command: list[str], parent: int) -> None:
    # A group of its own: an interrupt at the terminal is the owner's to handle.
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.execv(command[0], command)  # noqa: S606 - the command is the embedded server's, built by its owner


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
