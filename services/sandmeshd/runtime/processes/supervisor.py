"""A program that runs another one, which knows nothing of owners, and kills it with its owner.

Started by `spawn_child`, with the other program's command line as the arguments. That one gets a death signal besides,
in case this process is killed. Only the standard library is imported, so that it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(owner: int, status: int, command: list[str]) -> int:
    """Run the command until it ends or the owner does; return its exit status."""
    os.close(status)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(owner)
        _exec(command, parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pidfd = os.pidfd_open(child)
    # The owner writes nothing: its pipe is readable only at its end.
    select.select([pidfd, owner], [], [])
    # A program that looks for other signals once a second would end that much later.
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    _, code = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(code) & 0xFF


def _exec(command: list[str], parent: int) -> None:
    # In its own process group: an interrupt at the terminal is the owner's to handle.
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.execv(command[0], command)  # noqa: S606 - the command is built by this process's owner


if __name__ == "__main__":
    _, owner_fd, _, ready_fd, *arguments = sys.argv[1:]
    raise SystemExit(main(int(owner_fd), int(ready_fd), arguments))
