"""Which link leads to a sandbox.

Links to sandboxes that wait in pools are opened ahead, from the first session that is connected through this gateway
on: the first call after a claim has no link to wait for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import SandboxLost, SandboxNotFound, SandmeshError, WrongState
from sandmesh.shared.wire_errors import translated
from sandmeshd.agentlink.addresses import read_address
from sandmeshd.agentlink.connection import connect
from sandmeshd.agentlink.link import AgentLink, request
from sandmeshd.auth.principal import SERVICE, Principal, acting_for
from sandmeshd.gateway.metrics import GatewayMetrics
from sandmeshd.gateway.routes.call_meters import CallQuotas
from sandmeshd.gateway.routes.paused import PausedSandboxes, is_paused
from sandmeshd.runtime.retry import CALL_SECONDS, PASSING, SERVICE_SECONDS, retry_until_available


class Links(dict[str, AgentLink]):
    """The open links by sandbox; unused ones cost nothing when the used ones are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.in_use = asyncio.Event()
        """Set while there is something for `take_used` to return."""
        self._used: dict[str, AgentLink] = {}
        self._out_of_memory: set[str] = set()

    def add(self, link: AgentLink) -> None:
        """Add an unused link."""
        link.heartbeat.on_use = self._note_use
        self[link.sandbox_id] = link

    def _note_use(self, link: AgentLink) -> None:
        self._used[link.sandbox_id] = link
        self.in_use.set()

    def note_out_of_memory(self, sandbox_id: str) -> None:
        """Note that a call of a sandbox ended for want of memory."""
        self._out_of_memory.add(sandbox_id)
        self.in_use.set()

    def take_out_of_memory(self) -> set[str]:
        """Return the sandboxes of which that was noted since the last time."""
        found, self._out_of_memory = self._out_of_memory, set()
        return found

    def take_used(self) -> set[str]:
        """Return the sandboxes whose links carried anything since the last time, or do now."""
        used, self._used = self._used, {}
        self.in_use.clear()
        for link in used.values():
            if self.get(link.sandbox_id) is link and link.is_awaited:
                self._note_use(link)
            else:
                link.heartbeat.used = False
        return set(used)


log = structlog.get_logger()

_ASK_AGAIN_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_WATCH_AGAIN_SECONDS: Final = 5.0
_MOST_AHEAD: Final = 256
"""How many links are kept to sandboxes without a holder."""
_OPEN_AGAIN_SECONDS: Final = 1.0
"""After which such a link to an agent elsewhere that broke is opened once more."""
_HESITATION_SECONDS: Final = 0.3
"""How long an agent elsewhere may be silent on such a link once it is used, before another is opened."""


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
        self.links = Links()
        """The open ones by sandbox."""
        self.session_keys: dict[str, str] = {}
        """Of the sessions that have the sandboxes of open links; empty in a pool."""
        self.projects: dict[str, str] = {}
        """That these sandboxes count in; empty in a pool."""
        self.ahead: dict[str, sandbox_pb2.WatchPoolsResponse] = {}
        """The sandboxes in pools whose links are open, of which it is not known who takes them."""
        self._opening: dict[str, asyncio.Task[AgentLink]] = {}
        self._watching: asyncio.Task[None] | None = None
        self.quotas = CallQuotas()
        """What counts calls against quotas; the opener of a gateway replaces it."""
        self.paused = PausedSandboxes(sandboxes, SERVICE_SECONDS, self._resolve, self.links.get)
        """Requests resume these."""
        self.metrics = GatewayMetrics(CollectorRegistry())
        """What counts calls and links; the opener of a gateway replaces it."""

    def of(self, principal: Principal, on_probe: Callable[[Principal, str], None] | None = None) -> OwnedRoutes:
        """Return the routes to a principal's sandboxes; `on_probe` is called where it names another's."""
        return OwnedRoutes(self, principal, on_probe)

    async def learn_session(self, sandbox_id: str) -> None:
        """Ask which session has a sandbox: one may have taken it from its pool since its link was opened."""
        self._assign((await self._resolve(sandbox_id)).sandbox)

    def _assign(self, sandbox: sandbox_pb2.Sandbox) -> None:
        link = self.links.get(sandbox.sandbox_id)
        if link is not None:
            self.session_keys[sandbox.sandbox_id] = sandbox.session_key
            self.projects[sandbox.sandbox_id] = sandbox.project
            self.quotas.assign(sandbox)
            link.fencing_token = sandbox.lease.fencing_token
            if sandbox.session_key:
                self.ahead.pop(sandbox.sandbox_id, None)
            self._count()

    def _count(self) -> None:
        # Links that were opened ahead do not count.
        self.metrics.links.set(len(self.links) - len(self.ahead))

    async def link(self, sandbox_id: str) -> AgentLink:
        """Return the link to a sandbox.

        Raises:
            SandboxNotFound: There is no such sandbox.
            SandboxLost: It is gone; the message and facts say how it ended.
            WrongState: It is paused.
        """
        link = self.links.get(sandbox_id)
        if link is None or sandbox_id in self._opening or self._is_quiet(sandbox_id):
            link = await asyncio.shield(self._begin(sandbox_id))
        elif sandbox_id in self.paused.ids:
            await self.paused.check(sandbox_id)
        if sandbox_id in self.ahead:
            await self.learn_session(sandbox_id)
        return link

    def expect(self, response: bytes) -> None:
        """Open links to what a session was given, from its serialized ConnectSessionResponse: calls come next."""
        if self._watching is None:
            # It goes on behind all sessions, and for none of their callers.
            self._watching = Context().run(asyncio.create_task, _watch_pools(self._sandboxes, self._expect_taken))
        for sandbox in session_pb2.ConnectSessionResponse.FromString(response).session.sandboxes.values():
            known = sandbox.sandbox_id in self.links
            if known and not self._is_quiet(sandbox.sandbox_id):
                self._assign(sandbox)
            elif known or sandbox.state == sandbox_pb2.SANDBOX_STATE_READY:
                self._begin(sandbox.sandbox_id).add_done_callback(partial(self._opened_for, sandbox))

    def _opened_for(self, sandbox: sandbox_pb2.Sandbox, _: asyncio.Task[AgentLink]) -> None:
        if sandbox.sandbox_id in self.ahead:
            self._assign(sandbox)

    def _expect_taken(self, waiting: sandbox_pb2.WatchPoolsResponse) -> None:
        """Open a link ahead, but not through a cloud's gateway."""
        known = waiting.sandbox_id in self.links or waiting.sandbox_id in self._opening
        if not known and read_address(waiting.endpoint).holds and len(self.ahead) < _MOST_AHEAD:
            self._begin(waiting.sandbox_id, waiting)

    def _is_quiet(self, sandbox_id: str) -> bool:
        """Return whether nothing was said on an open link since it was opened ahead, and something between may cut it.

        The kernel may not have found out yet that its other end is gone.
        """
        waiting = self.ahead.get(sandbox_id)
        return waiting is not None and bool(read_address(waiting.endpoint).pin)

    def _begin(self, sandbox_id: str, waiting: sandbox_pb2.WatchPoolsResponse | None = None) -> asyncio.Task[AgentLink]:
        task = self._opening.get(sandbox_id)
        if task is None:
            if waiting is not None:
                opening = self._open_ahead(waiting)
            elif sandbox_id in self.links:
                opening = self._check(self.links[sandbox_id])
            else:
                opening = self._open(sandbox_id)
            task = self._opening[sandbox_id] = asyncio.create_task(opening)
            task.add_done_callback(partial(_forget, self._opening, sandbox_id))
        return task

    async def find_silence(self, sandbox_id: str) -> str:
        """Return which driver is silent, empty for none; a sandbox that its node knows to be lost is raised as that."""
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
        self.paused.close()
        if self._watching is not None:
            self._watching.cancel()
        # Those are not opened again.
        self.ahead.clear()
        for task in self._opening.values():
            task.cancel()
        for link in list(self.links.values()):
            link.close()

    async def _open(self, sandbox_id: str) -> AgentLink:
        began = time.monotonic()
        found = await self._resolve(sandbox_id)
        try:
            link = await self._connect(sandbox_id, found.endpoint, found.agent_token)
        except SandboxLost:
            # It may have been paused meanwhile, or have ended: its record says so.
            await self._resolve(sandbox_id)
            raise
        self._assign(found.sandbox)
        log.debug("a link is open", sandbox_id=sandbox_id, seconds=round(time.monotonic() - began, 6))
        return link

    async def _open_ahead(self, waiting: sandbox_pb2.WatchPoolsResponse) -> AgentLink:
        link = await self._connect(waiting.sandbox_id, waiting.endpoint, waiting.agent_token)
        self.ahead[waiting.sandbox_id] = waiting
        self._count()
        return link

    async def _check(self, link: AgentLink) -> AgentLink:
        """Return a quiet link if its agent answers on it without delay, else a new one."""
        try:
            await request(link, agent_pb2.ToAgent(ping=agent_pb2.Ping()), _HESITATION_SECONDS)
        except SandmeshError as error:
            log.info("a link that was opened ahead leads nowhere", sandbox_id=link.sandbox_id, error=error.message)
            self.ahead.pop(link.sandbox_id, None)
            link.fail(SandboxLost(f"the agent of {link.sandbox_id} does not answer"))
            link.close(now=True)
            return await self._open(link.sandbox_id)
        return link

    async def _connect(self, sandbox_id: str, endpoint: str, agent_token: str) -> AgentLink:
        make = partial(AgentLink, sandbox_id, self._closed, self._silence, self.paused.excuses)
        link = await connect(endpoint, make, agent_token, self._timeout)
        self.links.add(link)
        return link

    async def _resolve(self, sandbox_id: str) -> sandbox_pb2.ResolveSandboxResponse:
        request = sandbox_pb2.ResolveSandboxRequest(sandbox_id=sandbox_id)
        with acting_for(SERVICE), translated():
            return await self._sandboxes.ResolveSandbox(request, timeout=SERVICE_SECONDS)

    def _closed(self, link: AgentLink) -> None:
        if self.links.get(link.sandbox_id) is link:
            del self.links[link.sandbox_id]
            self.session_keys.pop(link.sandbox_id, None)
            self.projects.pop(link.sandbox_id, None)
            self.quotas.forget(link.sandbox_id)
            opens_again, waiting = self._is_quiet(link.sandbox_id), self.ahead.pop(link.sandbox_id, None)
            if waiting is not None and opens_again:
                asyncio.get_running_loop().call_later(_OPEN_AGAIN_SECONDS, self._expect_taken, waiting)
            self.paused.forget(link.sandbox_id)
            self._count()


def _forget(opening: dict[str, asyncio.Task[AgentLink]], sandbox_id: str, task: asyncio.Task[AgentLink]) -> None:
    opening.pop(sandbox_id, None)
    if not task.cancelled():
        task.exception()  # a waiter has it already; without one it is dropped


async def _watch_pools(
    sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub, on_pooled: Callable[[sandbox_pb2.WatchPoolsResponse], None]
) -> None:
    """Report each sandbox that waits in a pool, until cancelled."""
    while True:
        try:
            with translated():
                async for pooled in sandboxes.WatchPools(sandbox_pb2.WatchPoolsRequest()):
                    on_pooled(pooled)
        except SandmeshError as error:
            log.debug("pools are not watched just now", error=error.message)
        await asyncio.sleep(_WATCH_AGAIN_SECONDS)


class OwnedRoutes:
    """The links to one caller's sandboxes; another's is answered as if there were none."""

    def __init__(
        self, routes: Routes, principal: Principal, on_probe: Callable[[Principal, str], None] | None = None
    ) -> None:
        self._on_probe = on_probe
        self.metrics = routes.metrics
        self.quotas = routes.quotas
        self._routes = routes
        self._principal = principal
        # As `Principal.owns` has it, for each call.
        self._session_prefix = "" if principal.sandbox_id else principal.session_prefix
        self._only, self._project = principal.sandbox_id, principal.project

    def note_out_of_memory(self, sandbox_id: str) -> None:
        """Note that a call of a sandbox ended for want of memory, which becomes an event of it."""
        self._routes.links.note_out_of_memory(sandbox_id)

    def known(self, sandbox_id: str) -> AgentLink | None:
        """Return the open link to a sandbox, where there is one and the sandbox is known to be the caller's."""
        session_key = self._routes.session_keys.get(sandbox_id)
        if session_key is None or sandbox_id in self._routes.ahead or self._only not in ("", sandbox_id):
            return None
        if self._project:
            if self._routes.projects.get(sandbox_id) != self._project:
                return None
        elif not session_key.startswith(self._session_prefix):
            return None
        return None if sandbox_id in self._routes.paused.ids else self._routes.links[sandbox_id]

    async def link(self, sandbox_id: str, seconds: float = CALL_SECONDS) -> AgentLink:
        """Return the link to a sandbox; where the store must be asked and is away, it waits for so many seconds.

        Raises:
            SandboxNotFound: There is no such sandbox, or it is another's.
            SandboxLost: It is gone; the message and facts say how it ended.
            MeshUnavailable, StoreUnavailable, Recovering: Where it is cannot be said.
        """
        return await retry_until_available(partial(self._link, sandbox_id), seconds)

    async def _link(self, sandbox_id: str) -> AgentLink:
        try:
            link = await self._routes.link(sandbox_id)
        except WrongState as error:
            link = await self._resumed(sandbox_id, error)
        return await self._owned(link)

    async def _resumed(self, sandbox_id: str, error: WrongState) -> AgentLink:
        """Return the link to a sandbox that was paused; the first request resumes it, and others wait for the same."""
        if not is_paused(error):
            raise error
        await self._routes.paused.resume(sandbox_id, self._owns)
        return await self._routes.link(sandbox_id)

    def _owns(self, sandbox: sandbox_pb2.Sandbox) -> bool:
        return self._principal.owns(sandbox.session_key, sandbox.sandbox_id, sandbox.project)

    def resume_soon(self, sandbox_id: str) -> None:
        """Resume a sandbox, if it is known to be paused, for a frame that was sent to it."""
        self._routes.paused.resume_soon(sandbox_id)

    async def link_again(self, sandbox_id: str, seconds: float = CALL_SECONDS) -> AgentLink:
        """Return a link to a sandbox whose link broke; it waits a moment for the node to report why.

        Where the store is away it waits for that, for so many seconds.

        Raises:
            SandboxNotFound: There is no such sandbox, or it is another's.
            SandboxLost: It is gone, or cannot be reached for some seconds; the message and facts say how it ended.
            WrongState: It is paused.
            MeshUnavailable, StoreUnavailable, Recovering: Whether it is there cannot be said.
        """
        detail = "its agent is gone"
        for pause in _ASK_AGAIN_SECONDS:
            link = None
            try:
                link = await retry_until_available(partial(self._routes.link, sandbox_id), seconds)
            except WrongState as error:
                if is_paused(error):
                    link = await self._resumed(sandbox_id, error)
            except PASSING:
                raise
            except SandmeshError as error:
                log.debug("a sandbox is not reached again yet", sandbox_id=sandbox_id, error=error.message)
            if link is not None and link.open:
                return await self._owned(link)
            detail = await self._routes.find_silence(sandbox_id) or detail
            await asyncio.sleep(pause)
        raise SandboxLost(f"sandbox {sandbox_id} ended while the call ran", {"detail": detail})

    async def _owned(self, link: AgentLink) -> AgentLink:
        sandbox_id, keys = link.sandbox_id, self._routes.session_keys
        if self._principal.scope == "user" and not keys.get(sandbox_id):
            await self._routes.learn_session(sandbox_id)
        project = self._routes.projects.get(sandbox_id, "")
        if not self._principal.owns(keys.get(sandbox_id, ""), sandbox_id, project):
            if self._on_probe is not None:
                self._on_probe(self._principal, sandbox_id)
            raise SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        return link
