"""Which link leads to a sandbox."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from sandmesh._status import translated
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import SandboxLost, SandboxNotFound, SandmeshError
from sandmeshd.gateway.link import AgentLink, connect
from sandmeshd.runtime.callers import SERVICE, Caller, acting_for
from sandmeshd.runtime.metrics import GatewayMetrics

log = structlog.get_logger()

_ASK_AGAIN_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


class Routes:
    """Links to agents, each opened on first use and kept until it breaks.

    A link found open costs no round trip. Several callers that need a new one wait for the same.
    """

    def __init__(
        self, sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub, timeout: float, silence: float = 15.0
    ) -> None:
        self._sandboxes = sandboxes
        self._timeout = timeout
        self._silence = silence
        self._links: dict[str, AgentLink] = {}
        self._opening: dict[str, asyncio.Task[AgentLink]] = {}
        self._sessions: dict[str, str] = {}
        self.metrics = GatewayMetrics(CollectorRegistry())
        """What counts calls and links, until whoever opens a gateway gives another."""

    def of(self, caller: Caller) -> OwnedRoutes:
        """Give the way to the sandboxes that are a caller's."""
        return OwnedRoutes(self, caller)

    def session_key(self, sandbox_id: str) -> str:
        """Give the key of the session that has the sandbox of an open link; empty in a pool."""
        return self._sessions.get(sandbox_id, "")

    async def learn_session(self, sandbox_id: str) -> None:
        """Ask which session has a sandbox: one may have taken it from its pool since its link was opened."""
        self._sessions[sandbox_id] = (await self._resolve(sandbox_id)).sandbox.session_key

    def take_used(self) -> set[str]:
        """Give the sandboxes whose links carried anything since this was last asked, or do now."""
        return {sandbox_id for sandbox_id, link in self._links.items() if link.take_used()}

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
        return found if found is not None else await asyncio.shield(self._begin(sandbox_id))

    def expect(self, response: bytes) -> None:
        """Open links to what a session was given, from its serialized ConnectSessionResponse: calls come next."""
        for sandbox in session_pb2.ConnectSessionResponse.FromString(response).session.sandboxes.values():
            if sandbox.state == sandbox_pb2.SANDBOX_STATE_READY and sandbox.sandbox_id not in self._links:
                self._begin(sandbox.sandbox_id)

    def _begin(self, sandbox_id: str) -> asyncio.Task[AgentLink]:
        task = self._opening.get(sandbox_id)
        if task is None:
            task = asyncio.create_task(self._open(sandbox_id))
            self._opening[sandbox_id] = task
            task.add_done_callback(partial(self._opened, sandbox_id))
        return task

    async def link_again(self, sandbox_id: str) -> AgentLink:
        """Give a link to a sandbox whose link broke: that one may break too, and its node may take a moment to say why.

        Raises:
            SandboxLost: It is gone, or cannot be reached for some seconds; the message and facts say how it ended.
        """
        detail = "its agent is gone"
        for pause in _ASK_AGAIN_SECONDS:
            with suppress(SandmeshError):
                link = await self.link(sandbox_id)
                if link.open:
                    return link
            detail = await self._silence_of(sandbox_id) or detail
            await asyncio.sleep(pause)
        raise SandboxLost(f"sandbox {sandbox_id} ended while the call ran", {"detail": detail})

    async def _silence_of(self, sandbox_id: str) -> str:
        """Say which driver is silent, where one is; a sandbox that its node knows to be lost is raised as that."""
        try:
            found = await self._resolve(sandbox_id)
        except SandboxLost:
            raise
        except SandmeshError:
            return ""
        node = f"{found.sandbox.node_id} does not answer" if found.node_silent else ""
        return node and f"its agent is gone, and so is the driver of its node: {node}"

    def close(self) -> None:
        """Close every link."""
        for task in self._opening.values():
            task.cancel()
        for link in list(self._links.values()):
            link.close()

    async def _open(self, sandbox_id: str) -> AgentLink:
        began = time.monotonic()
        found = await self._resolve(sandbox_id)
        make = partial(AgentLink, sandbox_id, found.sandbox.lease.fencing_token, self._closed, self._silence)
        link = await connect(found.endpoint, make, found.agent_token, self._timeout)
        self._links[sandbox_id] = link
        self._sessions[sandbox_id] = found.sandbox.session_key
        self.metrics.links.set(len(self._links))
        log.debug("a link is open", sandbox_id=sandbox_id, seconds=round(time.monotonic() - began, 6))
        return link

    async def _resolve(self, sandbox_id: str) -> sandbox_pb2.ResolveSandboxResponse:
        request = sandbox_pb2.ResolveSandboxRequest(sandbox_id=sandbox_id)
        with acting_for(SERVICE), translated():
            return await self._sandboxes.ResolveSandbox(request, timeout=self._timeout)

    def _opened(self, sandbox_id: str, task: asyncio.Task[AgentLink]) -> None:
        self._opening.pop(sandbox_id, None)
        if not task.cancelled():
            task.exception()  # whoever waits has it; without a waiter it is no one's

    def _closed(self, link: AgentLink) -> None:
        if self._links.get(link.sandbox_id) is link:
            del self._links[link.sandbox_id]
            self.metrics.links.set(len(self._links))
            self._sessions.pop(link.sandbox_id, None)


class OwnedRoutes:
    """The links to one caller's sandboxes; another's is answered as if there were none."""

    def __init__(self, routes: Routes, caller: Caller) -> None:
        self.metrics = routes.metrics
        self._routes = routes
        self._caller = caller

    def known(self, sandbox_id: str) -> AgentLink | None:
        """Give the open link to a sandbox of the caller's, where there is one."""
        link = self._routes.known(sandbox_id)
        return link if link is not None and self._owns(sandbox_id) else None

    async def link(self, sandbox_id: str) -> AgentLink:
        """Give the link to a sandbox.

        Raises:
            SandboxNotFound: There is no such sandbox, or it is another's.
            SandboxLost: It is gone; the message and facts say how it ended.
        """
        return await self._owned(await self._routes.link(sandbox_id))

    async def link_again(self, sandbox_id: str) -> AgentLink:
        """Give a link to a sandbox whose link broke.

        Raises:
            SandboxNotFound: There is no such sandbox, or it is another's.
            SandboxLost: It is gone; the message and facts say how it ended.
        """
        return await self._owned(await self._routes.link_again(sandbox_id))

    async def _owned(self, link: AgentLink) -> AgentLink:
        sandbox_id = link.sandbox_id
        if not self._owns(sandbox_id) and not self._routes.session_key(sandbox_id):
            await self._routes.learn_session(sandbox_id)
        if not self._owns(sandbox_id):
            raise SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        return link

    def _owns(self, sandbox_id: str) -> bool:
        return self._caller.owns(self._routes.session_key(sandbox_id))
