"""The sandboxes that are paused, as far as a gateway knows: no agent of theirs answers, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandmeshError, WrongState
from sandmeshd.agentlink.link import AgentLink

log = structlog.get_logger()

_PAUSED: Final = "PAUSED"

Resolve = Callable[[str], Awaitable[object]]


class PausedSandboxes:
    """Learn of pauses by the requests that pass, and from the allocator where an agent is silent."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self.ids: set[str] = set()
        """Those that are known to be paused."""
        self._checking: asyncio.Task[None] | None = None

    def note_paused(self, response: bytes) -> None:
        """Take a serialized PauseSandboxResponse."""
        self.ids.add(sandbox_pb2.PauseSandboxResponse.FromString(response).sandbox.sandbox_id)

    def note_resumed(self, response: bytes) -> None:
        """Take a serialized ResumeSandboxResponse."""
        self.ids.discard(sandbox_pb2.ResumeSandboxResponse.FromString(response).sandbox.sandbox_id)

    def forget(self, sandbox_id: str) -> None:
        """Forget a sandbox whose link closed."""
        self.ids.discard(sandbox_id)

    def excuses(self, link: AgentLink) -> bool:
        """Return whether a silent agent is known to be paused, and ask for the next time.

        It may have been paused, or resumed, by way of another gateway.
        """
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._learn(link.sandbox_id))
        return link.sandbox_id in self.ids

    async def check(self, sandbox_id: str) -> None:
        """Check that a sandbox is not paused any more.

        Raises:
            WrongState: It is.
            SandboxNotFound, SandboxLost: It is gone.
        """
        await self._resolve(sandbox_id)
        self.ids.discard(sandbox_id)

    async def _learn(self, sandbox_id: str) -> None:
        try:
            await self.check(sandbox_id)
        except WrongState as error:
            if is_paused(error):
                self.ids.add(sandbox_id)
        except SandmeshError as error:
            log.debug("it is not known why an agent is silent", sandbox_id=sandbox_id, error=error.message)
            self.ids.discard(sandbox_id)

    def close(self) -> None:
        """Ask for nothing more."""
        if self._checking is not None:
            self._checking.cancel()


def is_paused(error: WrongState) -> bool:
    """Return whether a refusal is due to a pause."""
    return error.facts.get("state") == _PAUSED
