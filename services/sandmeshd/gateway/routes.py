"""Which link leads to a sandbox."""

from __future__ import annotations

import asyncio
from functools import partial

from sandmesh._status import translated
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.errors import SandboxLost, SandmeshError
from sandmeshd.gateway.link import AgentLink, connect


class Routes:
    """Links to agents, each opened on first use and kept until it breaks.

    A link found open costs no round trip. Several callers that need a new one wait for the same.
    """

    def __init__(self, sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub, timeout: float) -> None:
        self._sandboxes = sandboxes
        self._timeout = timeout
        self._links: dict[str, AgentLink] = {}
        self._opening: dict[str, asyncio.Task[AgentLink]] = {}

    def known(self, sandbox_id: str) -> AgentLink | None:
        """Give the open link to a sandbox, where there is one."""
        return self._links.get(sandbox_id)

    async def link(self, sandbox_id: str) -> AgentLink:
        """Give the link to a sandbox.

        Raises:
            SandboxNotFound: There is no such sandbox.
            SandboxLost: It is gone; the message and facts say how it ended.
        """
        found = self._links.get(sandbox_id)
        if found is not None:
            return found
        task = self._opening.get(sandbox_id)
        if task is None:
            task = asyncio.create_task(self._open(sandbox_id))
            self._opening[sandbox_id] = task
            task.add_done_callback(partial(self._opened, sandbox_id))
        return await asyncio.shield(task)

    async def why_lost(self, sandbox_id: str) -> SandmeshError:
        """Say how a sandbox ended whose link broke."""
        fallback = SandboxLost(f"sandbox {sandbox_id} ended while the call ran", {"detail": "its agent is gone"})
        try:
            with translated():
                request = sandbox_pb2.ResolveSandboxRequest(sandbox_id=sandbox_id)
                await self._sandboxes.ResolveSandbox(request, timeout=self._timeout)
        except SandboxLost as error:
            return error
        except SandmeshError:
            return fallback
        return fallback

    def close(self) -> None:
        """Close every link."""
        for task in self._opening.values():
            task.cancel()
        for link in list(self._links.values()):
            link.close()

    async def _open(self, sandbox_id: str) -> AgentLink:
        with translated():
            request = sandbox_pb2.ResolveSandboxRequest(sandbox_id=sandbox_id)
            found = await self._sandboxes.ResolveSandbox(request, timeout=self._timeout)
        make = partial(AgentLink, sandbox_id, found.sandbox.lease.fencing_token, self._closed)
        link = await connect(found.endpoint, make, found.agent_token, self._timeout)
        self._links[sandbox_id] = link
        return link

    def _opened(self, sandbox_id: str, task: asyncio.Task[AgentLink]) -> None:
        self._opening.pop(sandbox_id, None)
        if not task.cancelled():
            task.exception()  # whoever waits has it; without a waiter it is no one's

    def _closed(self, link: AgentLink) -> None:
        if self._links.get(link.sandbox_id) is link:
            del self._links[link.sandbox_id]
