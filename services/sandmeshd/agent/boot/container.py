"""The agent's birth as PID 1 of a container, whose runtime hands over no descriptors.

What it is told is in the file `config` of a directory that the driver shares with it and user code cannot enter; there
it says in `ready` that it listens, or why it does not. Where there is a FIFO `life`, it ends when no other process has
that open. What the zygote needs to know is in the file `user` too, so that both start side by side. Where it is reached
by a network, there is a file `tls` with what it shows there.
"""

from __future__ import annotations

import os
import socket
from importlib import import_module

from sandmeshd.agent.processes.namespaces import fork_zygote
from sandmeshd.agent.userland import syscalls, users

CONFIG, READY, LIFE, USER, TLS = "config", "ready", "life", "user", "tls"
EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""What counts processes ended for want of memory, by either version of control groups."""


def enter(directory: str, shut_in: str = "") -> tuple[dict[str, str], socket.socket, bool]:
    """Become the agent's uid, fork what becomes the zygote, and open what the agent is told by.

    `shut_in` is the uid that the container's network is none of, and the port of the agent: "1000,8571"; empty: there
    is no network.

    Returns: what the agent is told by as the options that name descriptors, the socket to the zygote, and whether that
    knows already what it needs to; else the agent is to tell it.

    Raises:
        OSError: The container lacks the directory, its files or the capabilities.
    """
    if shut_in:
        import_module("sandmeshd.agent.network.routing").shut_in(*map(int, shut_in.split(",")))
    if syscalls.passes_on_capabilities():
        users.become_agent()
        options, message = _options(directory), _told(directory)
        control = fork_zygote([], message)
    else:
        # Its program must begin as uid 0 to have capabilities at all.
        control = fork_zygote([])
        users.become_agent()
        options, message = _options(directory), _told(directory)
        if message:
            control.send(message)
    return options, control, bool(message)


def _options(directory: str) -> dict[str, str]:
    config = os.open(f"{directory}/{CONFIG}", os.O_RDONLY | os.O_CLOEXEC)
    _forget(directory, CONFIG)
    ready = os.open(f"{directory}/{READY}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    options = {"--config-fd": str(config), "--ready-fd": str(ready)}
    life = f"{directory}/{LIFE}"
    if _is_there(life):
        options["--life-fd"] = str(os.open(life, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    if _is_there(f"{directory}/{TLS}"):
        options["--tls"] = directory
    for path in EVENTS:
        if _is_there(path):
            options["--memory-fd"] = str(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    return options


def _told(directory: str) -> bytes:
    """Give what the zygote is told, as `birth.describe` writes it; nothing where the agent is to tell it."""
    try:
        with open(f"{directory}/{USER}", "rb") as file:  # noqa: PTH123 - as above
            message = file.read()
        _forget(directory, USER)
    except FileNotFoundError:
        return b""
    return message


def _is_there(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - pathlib is a slow import, and kernels wait for this


def _forget(directory: str, name: str) -> None:
    os.unlink(f"{directory}/{name}")  # noqa: PTH108 - as above
