"""The template process of sandboxes whose root is an image: see `template_process`.

A request is one JSON object: the account that user code has in the image, and how many processes it may have. The agent
requests it when its root is complete.
"""

from __future__ import annotations

import json
import os
from typing import Any

from sandmeshd.agent.userland.core import isolation, template_process
from sandmeshd.agent.userland.core.account import Account


class ImageUser(template_process.User):
    """What user code of a sandbox is: an account of its image."""

    shares_home = False

    def __init__(self, request: bytes) -> None:
        known: dict[str, Any] = json.loads(request)
        self._processes: int = known["processes"]
        self._account = Account(known["uid"], known["gid"], "", "")
        self._account.groups = known["groups"]

    def become(self) -> None:
        """Stay who this process is: it may join all namespaces below its own."""

    def enter_nested_namespaces(self) -> int:
        """Create user code's namespaces, which have all ids of the image, as root of the sandbox's."""
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        self._account.limit_namespace(self._processes)
        return isolation.enter_nested_namespaces(whole=True)

    def settle(self, seccomp: bytes) -> None:
        """Become the account."""
        self._account.settle(seccomp)


def run(fds: list[int], site: str) -> None:
    """Run the template process until the agents' zygote exits."""
    template_process.run(fds, site, ImageUser)
