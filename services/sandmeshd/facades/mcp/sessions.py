"""MCP sessions over HTTP: each has its own transport, server and sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass

import structlog
from mcp.server.runner import serve_loop
from mcp.server.streamable_http import (
    MCP_SESSION_ID_HEADER,
    EventCallback,
    EventMessage,
    EventStore,
    StreamableHTTPServerTransport,
)
from mcp.types import JSONRPCMessage
from starlette.requests import Request
from starlette.types import Message, Send

from sandmesh.errors import MeshUnavailable, NotFound
from sandmeshd.facades.mcp.sandboxes import SessionSandboxes
from sandmeshd.facades.mcp.server import open_session_server
from sandmeshd.facades.mcp.settings import AdapterSettings, McpHttpSettings
from sandmeshd.tenants.shares import Shares

log = structlog.get_logger()

RETRY_MS = 500
"""After which a client connects again whose stream broke off, in milliseconds."""


@dataclass(frozen=True)
class _Session:
    """One client's session; `owner` is a hash of the token that it was opened with."""

    transport: StreamableHTTPServerTransport
    owner: bytes
    running: asyncio.Task[None]


class HttpSessions:
    """The sessions that are open, by id. One is used only with the token that opened it."""

    def __init__(self, adapter: AdapterSettings, http: McpHttpSettings) -> None:
        self._adapter = adapter
        self._http = http
        self._open: dict[str, _Session] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self._shares = Shares("MCP sessions", http.max_sessions)

    async def handle(self, token: str | None, owner: str, request: Request, send: Send) -> None:
        """Route a request to its session; one that names none opens one.

        Raises:
            NotFound: No such session is open for this token.
            MeshUnavailable: As many are open as may be, for this owner or in all, and none ended while it waited.
        """
        named = request.headers.get(MCP_SESSION_ID_HEADER)
        if named is None:
            await self._handle_first(token, owner, request, send)
            return
        session = self._open.get(named)
        if session is None or session.owner != _digest(token):
            raise NotFound("no such MCP session is open: initialize a new one")
        await session.transport.handle_request(request.scope, request.receive, send)
        if session.transport.is_terminated:
            self._open.pop(named, None)

    async def close(self) -> None:
        """End all sessions with their sandboxes."""
        self._closed = True
        for task in self._ending:
            task.cancel()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _handle_first(self, token: str | None, owner: str, request: Request, send: Send) -> None:
        if self._closed:
            raise MeshUnavailable("the MCP adapter is shutting down")
        await self._shares.acquire(owner)
        session_id = secrets.token_urlsafe(24)
        transport = StreamableHTTPServerTransport(
            session_id,
            event_store=RecentEvents(),
            retry_interval=RETRY_MS,
            idle_timeout=self._http.idle_timeout,
        )
        ready = asyncio.Event()
        running = asyncio.create_task(self._run(session_id, transport, token, ready), name="sandmesh-mcp-session")
        self._open[session_id] = _Session(transport, _digest(token), running)
        self._ending.add(running)
        running.add_done_callback(self._ending.discard)
        running.add_done_callback(lambda _: self._shares.give(owner))
        await ready.wait()
        statuses: list[int] = []

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            await transport.handle_request(request.scope, request.receive, noting)
        finally:
            # Only `initialize` opens a session: what was refused leaves nothing.
            if not statuses or statuses[0] >= 400:
                running.cancel()

    async def _run(
        self, session_id: str, transport: StreamableHTTPServerTransport, token: str | None, ready: asyncio.Event
    ) -> None:
        try:
            async with (
                open_session_server(
                    SessionSandboxes(self._adapter, token), largest_message=self._http.largest_message
                ) as session,
                transport.connect() as (incoming, outgoing),
            ):
                ready.set()
                with transport.idle_scope or nullcontext():
                    await serve_loop(
                        session.server,
                        incoming,
                        outgoing,
                        lifespan_state=None,
                        session_id=session_id,
                        init_options=session.options(),
                    )
                self._open.pop(session_id, None)
                await transport.terminate()
        finally:
            self._open.pop(session_id, None)
            log.info("an MCP session ended")


def _digest(token: str | None) -> bytes:
    return hashlib.sha256((token or "").encode()).digest()


MOST_BYTES = 16 << 20
MOST_EVENTS = 1_000


@dataclass(frozen=True)
class _Event:
    number: int
    stream: str
    message: JSONRPCMessage | None
    size: int


class RecentEvents(EventStore):
    """Keeps events within a bound; what was dropped cannot be resumed."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._events: deque[_Event] = deque()
        self._bytes = 0
        self._count = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event and return its id."""
        self._count += 1
        size = 0 if message is None else len(message.model_dump_json(by_alias=True, exclude_unset=True))
        self._events.append(_Event(self._count, stream_id, message, size))
        self._bytes += size
        while len(self._events) > MOST_EVENTS or (self._bytes > self._most_bytes and len(self._events) > 1):
            self._bytes -= self._events.popleft().size
        return str(self._count)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after an event on its stream; None if the event is not kept."""
        last = next((sent for sent in self._events if str(sent.number) == last_event_id), None)
        if last is None:
            return None
        for event in list(self._events):
            if event.stream == last.stream and event.number > last.number and event.message is not None:
                await send_callback(EventMessage(event.message, str(event.number)))
        return last.stream
