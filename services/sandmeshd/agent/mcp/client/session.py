"""One server's session: its handshake, its tools, its calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol, cast

import httpx2
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, Implementation, ToolListChangedNotification

from sandmeshd.agent.mcp.client import protocol
from sandmeshd.agent.mcp.client.pieces import blocks_of, encode
from sandmeshd.agent.mcp.client.stdio import Noise, open_stdio
from sandmeshd.agent.mcp.client.tool_list import Listing, list_all

_SECONDS: Final = 30.0
_MOST_STRUCTURED: Final = 1 << 20
_LONGEST: Final = 2000
_GONE: Final = "Session terminated"
_NOT_FOUND: Final = 404
_SESSION: Final = "mcp-session-id"
_CLIENT: Final = Implementation(name="sandmesh", version="0.1")


class Agent(Protocol):
    """Where frames go."""

    async def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a frame."""
        ...

    async def taken(self, call: int) -> None:
        """Wait until a block has its place."""
        ...


class Dispatcher(JSONRPCDispatcher[TransportContext]):
    """The library's, which says when its connection ended."""

    async def run(self, *args: Any, **kwargs: Any) -> None:
        """Run until the connection ends."""
        self.ended = asyncio.Event()
        try:
            await super().run(*args, **kwargs)
        finally:
            self.ended.set()


class Session:
    """A server as the host knows it."""

    def __init__(self, agent: Agent, asked: Mapping[str, Any]) -> None:
        self.number: int = asked["session"]
        self._agent = agent
        self._asked = asked
        self._noise = Noise()
        self._dispatcher: Dispatcher | None = None
        self._headers: dict[str, str] = {}
        self._stale = asyncio.Event()
        self._refused = ""

    async def run(self, pipes: tuple[int, int] | None) -> None:
        """Open the session, follow its tools, and say how it ended."""
        opened = False
        try:
            async with AsyncExitStack() as stack:
                ended = await self._open(stack, pipes)
                await self._tell("opened", (await self._listing()).encoded())
                opened = True
                if self._noise.problem:
                    await self._tell("problem", told=self._noise.problem)
                await self._follow(ended)
            told = self._refused or "its connection ended"
        except Exception as error:
            told = self._refused or _say(error)
        await self._tell("closed" if opened else "failed", told=self._noise.broken or told)

    async def _tell(self, kind: str, body: bytes = b"", told: str = "") -> None:
        head = {"session": self.number, kind: told[:_LONGEST] or True, "fault": bool(self._noise.broken)}
        await self._agent.send(head, body)

    async def _open(self, stack: AsyncExitStack, pipes: tuple[int, int] | None) -> asyncio.Event:
        read, write = await self._connect(stack, pipes)
        self._dispatcher = dispatcher = Dispatcher(read, write)
        session = ClientSession(dispatcher=dispatcher, message_handler=self._heard, client_info=_CLIENT)
        await stack.enter_async_context(session)
        await session.initialize()
        if session.protocol_version is not None:
            self._headers = {MCP_PROTOCOL_VERSION_HEADER: session.protocol_version}
        # A server may refuse a way of opening and take the next one.
        self._refused = ""
        return dispatcher.ended

    async def _connect(self, stack: AsyncExitStack, pipes: tuple[int, int] | None) -> tuple[Any, Any]:
        if pipes is not None:
            return await stack.enter_async_context(open_stdio(pipes, self._noise))
        url, headers = self._asked["url"], self._asked["headers"]
        if self._asked["transport"] == "sse":
            return await stack.enter_async_context(sse_client(url, headers, _SECONDS, sse_read_timeout=86_400.0))
        hooks = {"response": [self._answered]}
        client = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(_SECONDS, read=None), event_hooks=hooks)
        await stack.enter_async_context(client)
        return await stack.enter_async_context(streamable_http_client(url, http_client=client))

    async def _answered(self, response: httpx2.Response) -> None:
        """Keep the status with which a start was refused, and notice that the server knows the session no more.

        The library tells of neither: of a status only that there was one, and of 404, with which the specification has
        a server that was restarted answer, only what its body says.
        """
        if self._dispatcher is None or response.request.method != "POST" or not response.is_error:
            return
        if not self._headers:
            self._refused = f"it answered HTTP {response.status_code}"
        elif response.status_code == _NOT_FOUND and _SESSION in response.request.headers:
            self._refused = "it knows the session no more (HTTP 404), as after it was started again"
            self._dispatcher.ended.set()

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._stale.set()

    async def _follow(self, ended: asyncio.Event) -> None:
        """List the tools again whenever they changed, until the connection ends."""
        over = asyncio.create_task(ended.wait())
        try:
            while not over.done():
                stale = asyncio.create_task(self._stale.wait())
                await asyncio.wait({over, stale}, return_when=asyncio.FIRST_COMPLETED)
                stale.cancel()
                if self._stale.is_set() and not over.done():
                    self._stale.clear()
                    await self._tell("listing", (await self._listing()).encoded())
        finally:
            over.cancel()

    async def _listing(self) -> Listing:
        try:
            return await list_all(self._ask)
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            # It has resources or prompts, and no tools.
            return Listing()

    async def _ask(self, method: str, params: dict[str, Any], on_progress: ProgressFnT | None = None) -> dict[str, Any]:
        if self._dispatcher is None:
            raise MCPError(CONNECTION_CLOSED, "the session is not open")
        options: CallOptions = {"headers": dict(self._headers)}
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self._dispatcher.send_raw_request(method, params, options)

    async def call(self, number: int, tool: str, arguments: bytes) -> None:
        """Run a tool and send what it gives. When this is cancelled the server is told."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            told = [progress, total or 0.0, (message or "")[:_LONGEST]]
            await self._agent.send({"call": number, "progress": told})

        try:
            params = {"name": tool, "arguments": json.loads(arguments or b"{}")}
            result = await self._ask("tools/call", params, report)
            await self._deliver(number, result)
        except MCPError as error:
            lost = error.code == CONNECTION_CLOSED or error.message == _GONE or bool(self._refused)
            told = f"The server refused the call: {error.message} (JSON-RPC error {error.code})."
            await self._end(number, True, self._noise.broken if lost else told, lost=lost)
        except Exception as error:
            await self._end(number, True, f"The server's answer could not be read: {_say(error)}.")

    async def _deliver(self, number: int, result: Mapping[str, Any]) -> None:
        failed = result.get("isError") is True
        ahead, first = protocol.MAX_AHEAD, ""
        for block in blocks_of(result):
            ahead -= len(block)
            head = {"call": number, "block": True, "waits": ahead < 0}
            await self._agent.send(head, block)
            if ahead < 0:
                await self._agent.taken(number)
            if failed and not first:
                first = str(json.loads(block).get("text", ""))
        await self._end(number, failed, first, await self._structured(number, result.get("structuredContent")))

    async def _structured(self, number: int, structured: object) -> bytes:
        told = encode(cast("dict[str, Any]", structured)) if isinstance(structured, dict) else b""
        if len(told) <= _MOST_STRUCTURED:
            return told
        text = f"[The structured result was left out: {len(told)} bytes of at most {_MOST_STRUCTURED}.]"
        await self._agent.send({"call": number, "block": True, "waits": False}, encode({"type": "text", "text": text}))
        return b""

    async def _end(self, number: int, failed: bool, told: str, body: bytes = b"", *, lost: bool = False) -> None:
        head = {"call": number, "end": True, "is_error": failed, "message": told[:_LONGEST], "lost": lost}
        await self._agent.send(head, body)


def _say(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, httpx2.HTTPStatusError):
        return f"it answered HTTP {error.response.status_code}"
    if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
        return "it ended the connection"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
