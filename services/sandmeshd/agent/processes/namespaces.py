"""The namespaces that user code lives in, and the zygote as their first process.

The agent forks while it has one thread and has read no secret. The child waits for its configuration, enters user,
its own mount and pid namespaces, hides what is not for user code, drops every privilege and becomes the zygote's
program under the template's interpreter. In a container, which allows no such namespaces, user code is isolated by its
uid, and what the zygote forks drops the zygote's privileges.
"""

from __future__ import annotations

import base64
import json
import os
import socket

from sandmeshd.agent.userland.core import isolation, syscalls, users
from sandmeshd.agent.userland.core.loader_variables import HELD_BACK, LOADED

TYPE_CHECKING = False  # as in syscalls; pathlib is as slow
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from sandmeshd.agent.userland.core.account import Account

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(__file__)), "userland", "__main__.py")  # noqa: PTH118, PTH120
LARGEST_MESSAGE = 1 << 20


def control_sockets() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of the socket between agent and zygote."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST_MESSAGE)
    return ends


def fork_zygote(
    cgroup_fds: list[int], config: bytes = b"", account: Account | None = None, processes: int = 0
) -> socket.socket:
    """Fork the process that becomes the zygote and return the socket to it.

    Where the root is an image its user namespace has all ids, it becomes the `account`, and no more than so many
    `processes` of all users together run there. The account of a container has no separate namespaces.

    Without `config`, which `zygote_config` returns, it waits for that on the socket. Only it keeps `cgroup_fds`,
    the files through which its children enter user code's control group.
    """
    ours, theirs = control_sockets()
    if os.fork() == 0:
        ours.close()
        _run_child(theirs, cgroup_fds, config, account, processes)
    theirs.close()
    for fd in cgroup_fds:
        os.close(fd)
    return ours


def zygote_config(python: str, environment: dict[str, str], hidden: str, seccomp: bytes, user: int = 0) -> bytes:
    """Return the configuration of a zygote; `user` is the uid that isolates user code, 0: namespaces do."""
    config = {"python": python, "environment": environment, "hidden": hidden, "user": user}
    return json.dumps({**config, "seccomp": base64.b64encode(seccomp).decode()}).encode()


def _run_child(
    control: socket.socket, cgroup_fds: list[int], message: bytes, account: Account | None, processes: int
) -> NoReturn:
    try:
        _prepare(control, cgroup_fds)
        config = json.loads(message or control.recv(LARGEST_MESSAGE) or "null")
        if config is not None and (config["user"] or (account is not None and account.in_container)):
            _restrict_container(account, base64.b64decode(config["seccomp"]))
            module = ["container_zygote", *_account_arguments(account, config["user"])]
            _become_zygote(control, module, cgroup_fds, config)
        if config is not None and account is not None:
            account.limit_namespace(processes)
        if config is not None and isolation.enter_nested_namespaces(whole=account is not None) == 0:
            isolation.hide(config["hidden"])
            settle = account.settle if account is not None else isolation.give_up_privileges
            settle(base64.b64decode(config["seccomp"]))
            _become_zygote(control, ["zygote"], cgroup_fds, config)
    except (OSError, ValueError) as error:
        control.send(json.dumps({"error": f"user code's namespaces could not be created: {error}"}).encode())
    finally:
        os._exit(1)


def _restrict_container(account: Account | None, seccomp: bytes) -> None:
    if account is not None and account.uid == 0:
        isolation.be_contained_root(seccomp)
        return
    users.pass_on_capabilities()
    isolation.restrict(seccomp)


def _account_arguments(account: Account | None, user: int) -> list[str]:
    """Return user code's uid, its gid, and its supplementary gids after their number."""
    numbers = [user, user, 0] if account is None else [account.uid, account.gid, len(account.groups), *account.groups]
    return list(map(str, numbers))


def _prepare(control: socket.socket, cgroup_fds: list[int]) -> None:
    """Close all descriptors but the socket, the log (standard error) and `cgroup_fds`: none may reach user code."""
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(null, target)
    syscalls.close_all_but([0, 1, 2, control.fileno(), *cgroup_fds])


def _become_zygote(
    control: socket.socket, module: list[str], cgroup_fds: list[int], config: dict[str, Any]
) -> NoReturn:
    passed = [control.fileno(), *cgroup_fds]
    for fd in passed:
        os.set_inheritable(fd, True)
    arguments = [config["python"], "-I", PROGRAM, *module, *map(str, passed)]
    # What an image or a user has the loader load must not come into a process that others are started from.
    environment = {
        f"{HELD_BACK}{name}" if name.startswith(LOADED) else name: value
        for name, value in config["environment"].items()
    }
    os.execve(config["python"], arguments, environment)  # noqa: S606 - no shell is wanted
