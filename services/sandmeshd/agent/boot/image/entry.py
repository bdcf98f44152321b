"""The first steps of an agent in an image: it finds user code's account, and becomes that itself."""

from __future__ import annotations

import os

from sandmeshd.agent.userland.core import syscalls
from sandmeshd.agent.userland.core.account import Account, find_account

TYPE_CHECKING = False  # as in syscalls; the agent forks before it imports anything
if TYPE_CHECKING:
    from typing import Any, Final

    from sandmesh.api.agent.v1 import agent_pb2

_KEPT: Final = sum(1 << number for number in (0, 1, 2, 3, 4, 5))
"""What the agent of a root needs for its files and processes: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID
and KILL, in the sandbox's user namespace."""


class ImageEntry:
    """What the driver says of an image: the JSON of `--image`."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._user: str = values["user"]
        self._root: bool | None = values["root"]
        self._owned: list[str] = values["owned"]
        """Directories of the sandbox's own that become the account's."""
        self.processes: int = values["processes"]
        """The most processes of all users together."""
        self._may_be_root: bool = values["may_be_root"]

    def account(self) -> Account:
        """Return the account of user code, which owns its directories from now on.

        Raises:
            ValueError: The image lacks it, or it has root's uid by another name.
        """
        found = find_account(self._user, self._root)
        if found.uid == 0 and not self._may_be_root:
            # Only the image itself can tell: its passwd(5) may give any name that uid.
            raise ValueError(
                f"the image's USER {self._user!r} is root, which this sandbox may not have: use root=False"
            )
        for path in self._owned:
            os.chown(path, found.uid, found.gid)
        return found


def become(account: Account, kept: int = _KEPT) -> None:
    """Turn the agent into the account, closed to what else runs as it.

    Its rights over others' files and processes are in force where the account has them; else only for snapshots.
    """
    syscalls.bound_capabilities(kept)
    syscalls.keep_capabilities()
    account.become()
    syscalls.hold_capabilities(kept if account.uid == 0 else 0, kept)
    syscalls.set_dumpable(False)


def complete(config: agent_pb2.AgentConfig, account: Account) -> None:
    """Add what only the image knows to a configuration: what is there stays."""
    for name, value in account.variables().items():
        if name not in config.environment:
            config.environment[name] = value
    if account.in_container:
        config.user_id, config.group_id = account.uid, account.gid
