"""Links to the agents of sandboxes that nobody has yet, opened ahead: who takes one waits for no hello."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.agentlink.addresses import read_address
from sandmeshd.agentlink.connection import connect_sandbox
from sandmeshd.agentlink.link import AgentLink

MOST: Final = 256
"""How many are kept: each is a descriptor. The sandboxes beyond are connected to when they are taken."""


@dataclass(frozen=True)
class Kept:
    """A sandbox as it was made, which nobody had since, and the open link to its agent."""

    sandbox: pb.RuntimeSandbox
    link: AgentLink


class Waiting:
    """A link a sandbox, until it is taken or the sandbox goes."""

    def __init__(self) -> None:
        self._opening: dict[str, asyncio.Task[Kept]] = {}

    def keep(self, sandbox: pb.RuntimeSandbox) -> None:
        """Begin to open one, to an agent on this machine: what lies between others may forget a link that is quiet."""
        if read_address(sandbox.endpoint).path and len(self._opening) < MOST:
            self.drop(sandbox.sandbox_id)
            self._opening[sandbox.sandbox_id] = asyncio.create_task(_open(sandbox))

    def take(self, sandbox_id: str) -> Kept | None:
        """Return a sandbox with its link, which the caller closes; None where none is open."""
        task = self._opening.get(sandbox_id)
        if task is None or not task.done() or task.exception() is not None or not task.result().link.open:
            self.drop(sandbox_id)
            return None
        del self._opening[sandbox_id]
        return task.result()

    def drop(self, sandbox_id: str) -> None:
        """Close the link to a sandbox, where there is one."""
        task = self._opening.pop(sandbox_id, None)
        if task is not None:
            task.cancel()
            task.add_done_callback(_close)

    def close(self) -> None:
        """Close every link."""
        for sandbox_id in list(self._opening):
            self.drop(sandbox_id)


async def _open(sandbox: pb.RuntimeSandbox) -> Kept:
    return Kept(sandbox, await connect_sandbox(sandbox))


def _close(task: asyncio.Task[Kept]) -> None:
    if not task.cancelled() and not isinstance(task.exception(), SandmeshError):
        task.result().link.close()
