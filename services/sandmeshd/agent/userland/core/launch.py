"""A new process between fork and exec: limits, session, directory, descriptors."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import struct
import termios
from collections.abc import Callable
from typing import Any, NoReturn

from sandmeshd.agent.userland.core import isolation, layer, syscalls, users

_HIGH = 200
_NONE = 1 << 30
"""An unused descriptor."""
_RESET = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ),
)
_LIMITS = (
    (resource.RLIMIT_NPROC, "processes"),
    (resource.RLIMIT_FSIZE, "file_bytes"),
    (resource.RLIMIT_NOFILE, "descriptors"),
    (resource.RLIMIT_SIGPENDING, "signals"),
)


class StepError(Exception):
    """A step between fork and exec failed; its name is the message."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(step)
        self.step = step
        self.number = number


def settle(fds: list[int], kept: list[int]) -> list[int]:
    """Duplicate the first three descriptors to 0, 1 and 2, move `kept` out of the way and close all others.

    Returns: the new descriptors of `kept`, which programs do not inherit.
    """
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in kept]
    sources = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in fds]
    for target, source in enumerate(sources):
        os.dup2(source, target)
    syscalls.close_all_but([0, 1, 2, *moved])
    return moved


def limit(limits: dict[str, int]) -> None:
    """Set the limits of user code, `processes` (with threads) and those below. 0 is none."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, name in _LIMITS:
        if limits[name]:
            resource.setrlimit(kind, (limits[name], limits[name]))


def be_limited(limits: dict[str, int]) -> None:
    """Set the limits of user code, then be its `user`."""
    limit(limits)
    if limits["user"]:
        users.become_user(limits["user"], limits["group"])


def allow_inspection() -> None:
    """Allow user code to inspect this process, and make it the first to be killed when memory runs out."""
    syscalls.set_dumpable(True)
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    try:
        os.write(fd, b"1000")
    finally:
        os.close(fd)


def reset_signals() -> None:
    """Reset signals that the zygote handles, or that nohup and shells' `&` left ignored."""
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    syscalls.reset_reserved_signals()


def join_cgroups(cgroup_fds: list[int]) -> None:
    """Move this process to where limits hold."""
    for fd in cgroup_fds:
        os.write(fd, b"0")


def become(request: dict[str, Any], fds: list[int], failure: int, cgroup_fds: list[int]) -> NoReturn:
    """Execute the program of a request in this fresh child; a failure is written to `failure`."""
    try:
        _step("group", lambda: join_cgroups(cgroup_fds))
        os.setsid()
        reset_signals()
        (failure,) = settle(fds, [failure])
        if request["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _step("limits", lambda: be_limited(request["limits"]))
        layer.make(request["env"])
        _step("directory", lambda: os.chdir(isolation.path_at_home(request["cwd"])))
        _step("memory", allow_inspection)
        _step("program", lambda: os.execvpe(request["argv"][0], request["argv"], request["env"]))  # noqa: S606
    except StepError as error:
        report(failure, error.step, error.number)
    except OSError as error:
        report(failure, "start", error.errno or errno.EIO)
    finally:
        os._exit(127)


def _step(name: str, action: Callable[[], object]) -> None:
    try:
        action()
    except (OSError, ValueError) as error:
        raise StepError(name, getattr(error, "errno", None) or errno.EINVAL) from error


def report(failure: int, step: str, number: int) -> None:
    """Report to the zygote what failed."""
    os.write(failure, struct.pack("!I", number) + step.encode())


def read_report(failure: int) -> dict[str, Any] | None:
    """Read what `report` wrote, None where nothing failed."""
    data = os.read(failure, 256)
    if len(data) < 4:
        return None
    return {"errno": struct.unpack("!I", data[:4])[0], "step": data[4:].decode()}
