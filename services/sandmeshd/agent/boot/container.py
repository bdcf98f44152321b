"""The start of an agent as PID 1 of a container, whose runtime passes no descriptors.

Its configuration is the file `config` in a directory that the driver shares with it and user code cannot enter; there
it writes into `ready` that it listens, or its error. Where there is a FIFO `life`, the agent ends when no other process
has it open. The zygote's configuration is also in the file `user`, so that both start in parallel. An agent that is
reached over a network has its certificate in the file `tls`.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from importlib import import_module

from sandmeshd.agent.processes.namespaces import fork_zygote
from sandmeshd.agent.userland.core import syscalls, users

CONFIG, READY, LIFE, USER, TLS = "config", "ready", "life", "user", "tls"
EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""The counters of processes killed for exceeding the memory limit, in either version of control groups."""


def enter(
    directory: str, shut_in: str = "", born: str = "", waits: str = ""
) -> tuple[dict[str, str], socket.socket, bool]:
    """Switch to the agent's uid, fork the process that becomes the zygote, and open the agent's files.

    `shut_in` is the uid that may not use the container's network, and the port of the agent: "1000,8571"; without the
    port others than the agent see to that; empty: the container has no network. `born` is the directory of the files
    where the driver shares none: see `birth`. `waits` is the line that configures an agent whose other configuration
    comes later; it is not secret. Such a container's network is its cloud's to shut, so it need not have NET_ADMIN. One
    that does not start as uid 0 has one uid for all, which must be that of user code: its agent must wait, since user
    code could read whatever its runtime shared.

    Returns: the options that name the agent's descriptors, the socket to the zygote, and whether the zygote is
    configured; otherwise the agent must configure it.

    Raises:
        OSError: The container lacks the directory, its files or the capabilities.
    """
    user, _, port = shut_in.partition(",")
    if port:
        with suppress(*([OSError] if waits else [])):
            import_module("sandmeshd.agent.network.routing").block_outbound(int(user), int(port))
    if born:
        import_module("sandmeshd.agent.boot.birth").unpack(born, directory, int(user))
    if waits:
        import_module("sandmeshd.agent.boot.birth").prepare(waits, directory, int(user))
    if syscalls.passes_on_capabilities():
        users.become_agent()
        options, message = open_files(directory), _zygote_config(directory)
        control = fork_zygote([], message)
    else:
        # The zygote's program must start as uid 0 to have capabilities at all.
        control = fork_zygote([])
        users.become_agent()
        options, message = open_files(directory), _zygote_config(directory)
        if message:
            control.send(message)
    return options, control, bool(message)


def open_files(directory: str) -> dict[str, str]:
    """Open the agent's files in a directory and remove its configuration; return the options that name them."""
    config = os.open(f"{directory}/{CONFIG}", os.O_RDONLY | os.O_CLOEXEC)
    _remove(directory, CONFIG)
    ready = os.open(f"{directory}/{READY}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    options = {"--config-fd": str(config), "--ready-fd": str(ready)}
    life = f"{directory}/{LIFE}"
    if _exists(life):
        options["--life-fd"] = str(os.open(life, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    if _exists(f"{directory}/{TLS}"):
        options["--tls"] = directory
    for path in EVENTS:
        if _exists(path):
            options["--memory-fd"] = str(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    return options


def _zygote_config(directory: str) -> bytes:
    """Return the zygote's configuration, as `zygote_config` writes it; empty where the agent must send it."""
    try:
        with open(f"{directory}/{USER}", "rb") as file:  # noqa: PTH123 - as above
            message = file.read()
        _remove(directory, USER)
    except FileNotFoundError:
        return b""
    return message


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - pathlib is a slow import, and kernels wait for this


def _remove(directory: str, name: str) -> None:
    os.unlink(f"{directory}/{name}")  # noqa: PTH108 - as above
