"""The template process: forks the first processes of user code's namespaces, with the template's kernel ready in them.

It is the template's half of what starts sandboxes quickly (the agent's is sandmeshd.agent.boot.zygote). It has one
thread and no secrets, and is outside of every sandbox. A request names a new sandbox by its namespaces; a fork of this
process joins them and, when the agent sends FURNISHED, creates the nested ones of user code below; its child becomes
the sandbox's kernel zygote there.

A request is one message, which says whose the sandbox is (`User`), whose descriptors are, in this order: the
namespaces (`NAMESPACES`, from /proc/self/ns), the control socket to the agent, the log, and the socket to the driver.
The fork sends the driver {"user": true} with a pidfd of the child. The driver answers "go" when the child is in its
control groups, with descriptors through which each further fork moves itself to where limits hold; until then nothing
of it runs on.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from sandmeshd.agent.userland.core import heap, isolation, launch, syscalls
from sandmeshd.agent.userland.core.zygote import ZygoteLoop, import_steps

NAMESPACES = ("user", "ipc", "uts", "net", "cgroup", "pid", "mnt")
"""In the order in which they are joined: joining the first grants the right to join the others."""

FURNISHED = b"furnished"
"""What the agent sends when the sandbox's mounts are complete: those of user code are a copy."""

_MAX_MESSAGE = 1 << 20
_MAX_CGROUP_FDS = 8


class Home:
    """The files that importing the kernel left in the home directory, for the fresh one of each sandbox."""

    def __init__(self, path: str) -> None:
        self._folders: list[str] = []
        self._files: dict[str, bytes] = {}
        for root, folders, names in os.walk(path):
            self._folders += [os.path.join(root, name) for name in folders]  # noqa: PTH118 - pathlib is a slow import
            for name in names:
                self._keep(os.path.join(root, name))  # noqa: PTH118 - as above

    def _keep(self, path: str) -> None:
        # A separate mount is the sandbox's already.
        if not os.path.ismount(path) and os.path.isfile(path):  # noqa: PTH113 - as above
            with open(path, "rb") as file:  # noqa: PTH123 - as above
                self._files[path] = file.read()

    def furnish(self) -> None:
        """Write the files and folders again."""
        for path in self._folders:
            os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103 - as above
        for path, data in self._files.items():
            with open(path, "xb") as file:  # noqa: PTH123 - as above
                file.write(data)


class User:
    """What user code of a sandbox is: a uid, 0 for this process's own."""

    shares_home = True
    """Whether its home is at the same place as the template process's."""

    def __init__(self, request: bytes) -> None:
        self._uid = int(request)

    def become(self) -> None:
        """Become who may join the sandbox's namespaces: they are that uid's."""
        isolation.become(self._uid)

    def enter_nested_namespaces(self) -> int:
        """Create user code's namespaces; return 0 in their first process, in the other its pid."""
        return isolation.enter_nested_namespaces()

    def settle(self, seccomp: bytes) -> None:
        """Drop the privileges that user code does not have."""
        isolation.give_up_privileges(seccomp)


class TemplateProcess:
    """The loop over requests; `user` reads whose the sandbox of one is."""

    def __init__(self, control: socket.socket, kernel: Any, user: Callable[[bytes], User] = User) -> None:
        self._user = user
        self._control = control
        self._kernel = kernel
        self._home = Home(os.environ["HOME"])

    def serve(self) -> NoReturn:
        """Fork for each request until the agents' zygote exits."""
        gc.collect()
        heap.fill_holes()
        gc.freeze()
        # The forks are not awaited.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.alarm(0)
        self._control.send(json.dumps({"up": True}).encode())
        while True:
            data, fds, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, len(NAMESPACES) + 3)
            if not data:
                os._exit(0)
            if syscalls.fork_bare() == 0:
                self._be_sandbox(fds, self._user(data))
            for fd in fds:
                os.close(fd)

    def _be_sandbox(self, fds: list[int], user: User) -> NoReturn:
        namespaces, (control, log, driver) = fds[: len(NAMESPACES)], fds[len(NAMESPACES) :]
        agent = socket.socket(fileno=control)
        try:
            _settle(log, [control, driver, *namespaces])
            user.become()
            for namespace in namespaces:
                syscalls.join(namespace)
                os.close(namespace)
            # Awaited here: a child that is killed while it waits would leave this interpreter without its lock.
            if agent.recv(16) == FURNISHED:
                # One that was killed has nothing to report: its sandbox ends.
                with suppress(ChildProcessError):
                    syscalls.borrow_memory(lambda: self._nest(agent, driver, user))
        except (OSError, ValueError) as error:
            _report_failure(agent, error)
        finally:
            os._exit(1)

    def _nest(self, agent: socket.socket, driver: int, user: User) -> int:
        """Fork the first process of user code's namespaces, from within the sandbox's pid namespace."""
        if _enter_nested_namespaces(user, driver):
            return 0
        try:
            self._become_zygote(agent, socket.socket(fileno=driver), user)
        except (OSError, ValueError) as error:
            _report_failure(agent, error)
        finally:
            os._exit(1)

    def _become_zygote(self, agent: socket.socket, driver: socket.socket, user: User) -> None:
        os.setsid()
        if user.shares_home:
            self._home.furnish()
        answer, cgroup_fds, _, _ = socket.recv_fds(driver, 16, _MAX_CGROUP_FDS)
        if answer != b"go":
            return
        driver.close()
        # Seen from inside, the control groups begin where the driver put this process.
        syscalls.unshare(syscalls.CLONE_NEWCGROUP)
        spec = json.loads(agent.recv(_MAX_MESSAGE) or "null")
        if spec is None:
            return
        isolation.hide(spec["hidden"])
        os.environ.clear()
        os.environ.update(spec["environment"])
        user.settle(base64.b64decode(spec["seccomp"]))
        if not user.shares_home:
            self._kernel.move_home()
        time.tzset()
        syscalls.set_dumpable(False)
        ZygoteLoop(agent, cgroup_fds).serve(iter([lambda: self._kernel]))


def _report_failure(agent: socket.socket, error: Exception) -> None:
    agent.send(json.dumps({"error": f"user code's namespaces could not be made: {error}"}).encode())


def _settle(log: int, kept: list[int]) -> None:
    launch.reset_signals()
    nothing = os.open(os.devnull, os.O_RDWR)
    for target, source in enumerate((nothing, nothing, log)):
        os.dup2(source, target)
    syscalls.close_all_but([0, 1, 2, *kept])


def _enter_nested_namespaces(user: User, driver: int) -> int:
    """Create user code's namespaces; return 0 in their first process, which the other reports to the driver."""
    child = user.enter_nested_namespaces()
    if child:
        pidfd = os.pidfd_open(child)
        with socket.socket(fileno=driver) as connection:
            socket.send_fds(connection, [json.dumps({"user": True}).encode()], [pidfd])
    return child


def run(fds: list[int], site: str, user: Callable[[bytes], User] = User) -> None:
    """Run the template process until the agents' zygote exits; `site` is where this package was found."""
    (control_fd,) = fds
    syscalls.set_dumpable(False)
    os.set_inheritable(control_fd, False)
    control = socket.socket(fileno=control_fd)
    make: Any = None
    for make in import_steps(site):  # noqa: B007 - the last one counts
        pass
    TemplateProcess(control, make(), user).serve()
