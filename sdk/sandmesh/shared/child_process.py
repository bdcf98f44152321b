"""Child processes that end with their owner.

A child watches a pipe whose write end only its owner holds: the owner's end, kill -9 too, closes it, without signal
handlers or atexit. On a second pipe the child reports its status as JSON lines: progress, then the result or an error.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any

from sandmesh.errors import CLASSES, SandmeshError


class ChildProcess:
    """A running child, and this process's ends of the two pipes."""

    def __init__(self, process: subprocess.Popen[bytes], owner: int, status: int) -> None:
        self.process = process
        self.owner = owner
        """The write end of the owner pipe."""
        self.status = status
        """The read end of the status pipe."""

    def close_status(self) -> None:
        """Close the status pipe, if it is open."""
        if self.status >= 0:
            os.close(self.status)
            self.status = -1

    def release(self) -> None:
        """Close both pipes, if they are open: the child ends unless a fork of this process holds the owner pipe."""
        self.close_status()
        if self.owner >= 0:
            os.close(self.owner)
            self.owner = -1


def spawn_child(
    program: Sequence[str],
    arguments: Sequence[str] = (),
    *,
    output: IO[bytes] | int | None = None,
    pass_fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
) -> ChildProcess:
    """Start `program --owner-fd N --ready-fd M arguments...` in a new session.

    A Ctrl-C thus reaches only the owner. `output` takes standard output and error; by default both are shared.
    """
    owner_reader, owner = os.pipe()
    status, status_writer = os.pipe()
    command = [*program, "--owner-fd", str(owner_reader), "--ready-fd", str(status_writer), *arguments]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(owner_reader, status_writer, *pass_fds),
            env=env,
            start_new_session=True,
        )
    except BaseException:
        os.close(owner)
        os.close(status)
        raise
    finally:
        os.close(owner_reader)
        os.close(status_writer)
    return ChildProcess(process, owner, status)


def error_status(error: SandmeshError) -> dict[str, Any]:
    """Return the status message that reports an error."""
    return {"error": {"reason": error.reason, "message": error.message, "metadata": error.facts}}


def read_error(status: Mapping[str, Any]) -> SandmeshError:
    """Return the error that a status message reports."""
    error: Mapping[str, Any] = status["error"]
    facts = {str(key): str(value) for key, value in error.get("metadata", {}).items()}
    return CLASSES.get(str(error.get("reason")), SandmeshError)(str(error.get("message", "")), facts)
