"""Links to the agents of unclaimed sandboxes, opened ahead: a claim waits for no hello."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.agentlink.addresses import read_address
from sandmeshd.agentlink.connection import connect_sandbox
from sandmeshd.agentlink.link import AgentLink

MOST: Final = 256
"""How many are kept: each is a descriptor. The sandboxes beyond are connected to when they are taken."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a link to an agent elsewhere that broke, or could not be opened, is opened again."""


@dataclass(frozen=True)
class WarmLink:
    """A sandbox as it was made, never claimed since, and the open link to its agent."""

    sandbox: pb.RuntimeSandbox
    link: AgentLink


class WaitingLink:
    """A link a sandbox, until it is taken or the sandbox goes."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def keep(self, sandbox: pb.RuntimeSandbox) -> None:
        """Begin to open one, but not through a cloud's gateway."""
        if read_address(sandbox.endpoint).holds and len(self._held) < MOST:
            self.drop(sandbox.sandbox_id)
            self._held[sandbox.sandbox_id] = _Held(sandbox)

    def take(self, sandbox_id: str) -> WarmLink | None:
        """Return a sandbox with its link, which the caller closes; None where none is open.

        One to an agent elsewhere may lead nowhere although it is open: its machine went away, or something between
        forgot it, and the kernel has not found that out yet.
        """
        held = self._held.pop(sandbox_id, None)
        if held is None:
            return None
        held.task.cancel()
        if held.link is None or not held.link.open:
            return None
        return WarmLink(held.sandbox, held.link)

    def drop(self, sandbox_id: str) -> None:
        """Close the link to a sandbox, where there is one."""
        kept = self.take(sandbox_id)
        if kept is not None:
            kept.link.close(now=True)

    def close(self) -> None:
        """Close every link."""
        for sandbox_id in list(self._held):
            self.drop(sandbox_id)


class _Held:
    """The link to one sandbox."""

    def __init__(self, sandbox: pb.RuntimeSandbox) -> None:
        self.sandbox = sandbox
        self.link: AgentLink | None = None
        self.task = asyncio.create_task(self._hold())

    async def _hold(self) -> None:
        """Open it, and again where that failed or it broke: an agent of this machine that closes it is dead."""
        is_elsewhere, pause = bool(read_address(self.sandbox.endpoint).pin), FIRST_PAUSE
        while True:
            with suppress(SandmeshError):
                self.link = await connect_sandbox(self.sandbox)
                if is_elsewhere:
                    pause = FIRST_PAUSE
                    await asyncio.shield(self.link.closed)
            if not is_elsewhere:
                return
            self.link = None
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
