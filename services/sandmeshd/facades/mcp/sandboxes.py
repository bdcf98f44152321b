"""The sandboxes of one MCP session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from sandmesh import MeshAsync, SandboxAsync, SandboxService, SandmeshError
from sandmesh.errors import NotFound
from sandmesh.sandbox.kernels import Forks
from sandmesh.sandbox.mcp.connection import McpConnectionAsync
from sandmeshd.facades.mcp.client_messages import ClientMessages
from sandmeshd.facades.mcp.settings import AdapterSettings

log = structlog.get_logger()

# The mesh takes a token's own user for an id that begins so; named sessions of administrators' tokens are this one's.
NOBODY = "anonymous-mcp"


class SessionSandboxes:
    """Has one sandbox in use: made when it is first needed, again when it was lost, ended with the MCP session.

    A named session's sandbox stays, and so does one that was only attached to.
    """

    def __init__(self, settings: AdapterSettings, token: str | None = None) -> None:
        own = settings.bearer_token.get_secret_value() if settings.bearer_token else None
        self.settings = settings
        self.changed: Callable[[], None] = lambda: None
        self.connections = SandboxConnections()
        self._token = token or own
        self.mesh = MeshAsync(settings.base_url, self._token)
        """A client of the mesh, which is not started."""
        self._user = (settings.user if token is None else None) or NOBODY
        self._mesh = SandboxService(settings.base_url, self._token, settings.timeout, ttl=settings.ttl)
        self._lock = asyncio.Lock()
        self._boxes: dict[str, SandboxAsync] = {}
        self._current: SandboxAsync | None = None
        self._watchers: dict[str, asyncio.Task[None]] = {}

    @property
    def current(self) -> SandboxAsync | None:
        """The sandbox in use; None while none was needed."""
        return self._current

    @property
    def boxes(self) -> list[SandboxAsync]:
        """The sandboxes of this MCP session, the oldest first."""
        return list(self._boxes.values())

    async def reach(self) -> None:
        """Reach the mesh, and start a private one where there is none.

        Raises:
            SandmeshError: It cannot be reached, or does not take the token.
        """
        await self._mesh.start()

    async def box(self) -> SandboxAsync:
        """Return the sandbox in use; the first call makes it.

        Raises:
            SandmeshError: It could not be had.
        """
        async with self._lock:
            return self._current or await self._enter(await self._first())

    async def make(self, sandbox_type: str) -> SandboxAsync:
        """Make another sandbox and use it from now on."""
        async with self._lock:
            return await self._enter(await self._own(sandbox_type))

    async def use(self, sandbox_id: str) -> SandboxAsync:
        """Use a sandbox of this MCP session, or attach to one that is there already.

        Raises:
            SandboxNotFound: There is none, or it is not the caller's.
        """
        async with self._lock:
            found = self._boxes.get(sandbox_id)
            return await self._enter(found or await self._attached(sandbox_id))

    def find(self, sandbox_id: str) -> SandboxAsync:
        """Return a sandbox of this MCP session.

        Raises:
            NotFound: It is none of this MCP session's.
        """
        box = self._boxes.get(sandbox_id)
        if box is None:
            known = ", ".join(self._boxes) or "none"
            raise NotFound(f"{sandbox_id!r} is not a sandbox of this MCP session, which has {known}")
        return box

    async def fork(self, sandbox_id: str, count: int) -> Forks[SandboxAsync]:
        """Fork a sandbox of this MCP session, which ends the forks too; the one in use stays in use.

        Raises:
            NotFound: It is none of this MCP session's.
            SandmeshError: No fork could be created.
        """
        async with self._lock:
            forks = await self.find(sandbox_id).fork(count)
            for box in forks:
                self._keep(box)
            await asyncio.gather(*(self.connections.open(box) for box in forks))
            return forks

    async def end(self, sandbox_id: str) -> None:
        """End a sandbox that this MCP session made; one that it attached to is only let go.

        Raises:
            NotFound: It is none of this MCP session's.
        """
        async with self._lock:
            await self._leave(self.find(sandbox_id))

    async def lost(self, box: SandboxAsync) -> None:
        """Forget a sandbox that is lost."""
        async with self._lock:
            if box.is_open and self._boxes.get(box.sandbox_id) is box:
                await self._leave(box)

    async def close(self) -> None:
        """End what this MCP session made."""
        async with self._lock:
            await asyncio.gather(*(self._leave(box) for box in self.boxes))
            await self._mesh.stop()

    async def _first(self) -> SandboxAsync:
        name = self.settings.session
        if self.settings.sandbox_id is not None:
            return await self._attached(self.settings.sandbox_id)
        if name is None:
            return await self._own(self.settings.sandbox_type)
        await self._mesh.start()
        [box] = await self._mesh.connect_async(name, self._user, [self.settings.sandbox_type])
        return await self._with_servers(box)

    async def _own(self, sandbox_type: str) -> SandboxAsync:
        settings = self.settings
        options = settings.sandbox_options()
        box = SandboxAsync(None, settings.timeout, settings.base_url, self._token, sandbox_type, **options)
        return await self._with_servers(await box.start())

    async def _with_servers(self, box: SandboxAsync) -> SandboxAsync:
        """Connect to the MCP servers of a sandbox, and add those that it lacks."""
        wanted = self.settings.mcp_servers
        try:
            await self.connections.open(box)
            there = {server.name for server in await box.list_mcp_servers()} if wanted else set[str]()
            lacking = {name: config for name, config in wanted.items() if name not in there}
            for server in await box.add_mcp_servers({"mcpServers": lacking}) if lacking else []:
                if server.state == "FAILED":
                    log.warning("an MCP server did not start", server=server.name, error=server.error, log=server.log)
            await self.connections.set_level(box, wanted)
        except BaseException:
            await self.connections.close(box)
            await box.close()
            raise
        return box

    async def _attached(self, sandbox_id: str) -> SandboxAsync:
        box = await SandboxAsync(sandbox_id, self.settings.timeout, self.settings.base_url, self._token).start()
        await self.connections.open(box)
        return box

    async def _enter(self, box: SandboxAsync) -> SandboxAsync:
        self._current = box
        self._keep(box)
        log.info("a sandbox is in use", sandbox_id=box.sandbox_id, template=box.sandbox_type)
        self.changed()
        return box

    def _keep(self, box: SandboxAsync) -> None:
        self._boxes[box.sandbox_id] = box
        if box.sandbox_id not in self._watchers:
            self._watchers[box.sandbox_id] = asyncio.create_task(self._follow(box), name="sandmesh-mcp-tools")

    async def _follow(self, box: SandboxAsync) -> None:
        """Notify the client when the tools of a sandbox change."""
        try:
            async with box.watch_tools() as changes:
                async for _ in changes:
                    if box is self._current:
                        self.changed()
        except SandmeshError as error:
            log.info("changes of a sandbox's tools are not heard of", reason=error.reason)

    async def _leave(self, box: SandboxAsync) -> None:
        del self._boxes[box.sandbox_id]
        watcher = self._watchers.pop(box.sandbox_id)
        watcher.cancel()
        await asyncio.wait([watcher])
        await self.connections.close(box)
        if self._current is box:
            self._current = None
            self.changed()
        try:
            await box.close()
        except SandmeshError as error:
            log.warning("a sandbox could not be given back; it ends when its lease does", error=str(error))


class SandboxConnections:
    """One connection for each sandbox. Servers that start while it is open know what the client handles."""

    def __init__(self) -> None:
        self.messages = ClientMessages()
        self._open: dict[str, McpConnectionAsync] = {}

    async def open(self, box: SandboxAsync) -> McpConnectionAsync:
        """Return the connection to the servers of a sandbox, those that are there and those to come.

        Raises:
            SandmeshError: The sandbox cannot be reached.
        """
        connection = self._open.get(box.sandbox_id)
        if connection is None or not connection.is_open:
            messages = self.messages
            handlers = (messages.on_request, messages.on_notification)
            connection = self._open[box.sandbox_id] = await box.connect_mcp(messages.capabilities, *handlers)
        return connection

    async def close(self, box: SandboxAsync) -> None:
        """Disconnect from the servers of a sandbox."""
        connection = self._open.pop(box.sandbox_id, None)
        if connection is not None:
            await connection.aclose()

    async def set_level(self, box: SandboxAsync, servers: Iterable[str]) -> None:
        """Pass the client's level of logging to servers; those that log nothing refuse it."""
        level = self.messages.level
        if level is not None:
            connection = await self.open(box)
            requests = (connection.request(server, "logging/setLevel", {"level": level}) for server in servers)
            failures = await asyncio.gather(*requests, return_exceptions=True)
            for failure in failures:
                if isinstance(failure, BaseException) and not isinstance(failure, SandmeshError):
                    raise failure
