"""The start of an agent as PID 1 of a container whose image has no agent: see sandmeshd.agent.boot.container.

Who user code is, the image says. Where that is root, agent and zygote have its uid: both are closed to what else runs
as it, and user code has what the runtime leaves to root. Else the agent has its own uid, as in images that have one.
"""

from __future__ import annotations

import json
import os
import socket

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


def enter(directory: str, text: str) -> tuple[dict[str, str], socket.socket, Account]:
    """Prepare the image's root, fork the process that becomes the zygote, and leave what rights are not needed.

    Returns: the options that name the agent's descriptors, the socket to the zygote, and user code's account.

    Raises:
        OSError: The container lacks the directory, its files or the capabilities.
        ValueError: The image lacks the account, or may not have it.
    """
    values: dict[str, Any] = json.loads(text)
    os.umask(0o022)
    fill_etc(values["etc"], values["working_directory"])
    account = ImageEntry(values).account()
    account.in_container = True
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
