"""The start of an agent as PID 1 of a container whose image has no agent: see sandmeshd.agent.boot.container.

Who user code is, the image says. Where that is root, agent and zygote have its uid: both are closed to what else runs
as it, and user code has what the runtime leaves to root. Else the agent has its own uid, as in images that have one.
"""

from __future__ import annotations

import json
import os
import socket
from importlib import import_module

from sandmeshd.agent.boot.container import open_files
from sandmeshd.agent.boot.image.entry import ImageEntry, become
from sandmeshd.agent.boot.image.filesystem import fill_etc
from sandmeshd.agent.processes.namespaces import fork_zygote
from sandmeshd.agent.userland.core import syscalls, users

TYPE_CHECKING = False  # as in syscalls
if TYPE_CHECKING:
    from typing import Any, Final

    from sandmeshd.agent.userland.core.account import Account

_KEPT: Final = sum(1 << number for number in (0, 1, 3, 4, 5))
"""What the agent of a root needs for its files and processes: CHOWN, DAC_OVERRIDE, FOWNER, FSETID and KILL."""

_NET_ADMIN: Final = 12


def enter(
    directory: str, text: str, shut_in: str = "", waits: str = ""
) -> tuple[dict[str, str], socket.socket, Account]:
    """Prepare the image's root, fork the process that becomes the zygote, and leave what rights are not needed.

    `shut_in` is the port of the agent where the container has a network, which nothing else of it may use then; `waits`
    is the line that configures an agent whose other configuration comes later: user code that is root could read what
    its runtime shared. Both are empty where the agent has a directory of its driver's.

    Returns: the options that name the agent's descriptors, the socket to the zygote, and user code's account.

    Raises:
        OSError: The container lacks the directory, its files or the capabilities.
        ValueError: The image lacks the account, or may not have it.
    """
    values: dict[str, Any] = json.loads(text)
    os.umask(0o022)
    if shut_in:
        import_module("sandmeshd.agent.network.routing").block_outbound(None, int(shut_in))
        _give_up(_NET_ADMIN)
    if waits:
        import_module("sandmeshd.agent.boot.birth").prepare_in_image(waits, directory)
    fill_etc(values["etc"], values["working_directory"])
    account = ImageEntry(values).account()
    account.in_container = True
    if waits and account.uid:
        import_module("sandmeshd.agent.boot.birth").hand_to_agent(directory)
    if account.uid == 0:
        control = fork_zygote([], account=account)
        options = open_files(directory)
        become(account, _KEPT)
    elif syscalls.passes_on_capabilities():
        users.become_agent(account.groups)
        options = open_files(directory)
        control = fork_zygote([], account=account)
    else:
        # The zygote's program must start as uid 0 to have capabilities at all.
        control = fork_zygote([], account=account)
        users.become_agent(account.groups)
        options = open_files(directory)
    return options, control, account


def _give_up(capability: int) -> None:
    """Drop a capability for this process and for every program that it executes."""
    left = syscalls.permitted_capabilities() & ~(1 << capability)
    syscalls.bound_capabilities(left)
    syscalls.set_capabilities(left, 0)
