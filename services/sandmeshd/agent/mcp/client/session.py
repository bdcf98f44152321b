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
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, Implementation, ToolListChangedNotification

from sandmeshd.agent.mcp.client import protocol
from sandmeshd.agent.mcp.client.relay import RelayDispatcher, ServerRelay
from sandmeshd.agent.mcp.client.result_blocks import blocks_of, encode
from sandmeshd.agent.mcp.client.stdio import InvalidOutput, open_stdio
from sandmeshd.agent.mcp.client.tool_list import ToolListing, list_all

_SECONDS: Final = 30.0
_MAX_STRUCTURED: Final = 1 << 20
_LONGEST: Final = 2000
_GONE: Final = "Session terminated"
_NOT_FOUND: Final = 404
_SESSION: Final = "mcp-session-id"
_CLIENT: Final = Implementation(name="sandmesh", version="0.1")


class SessionPeer(Protocol):
    """The peer that a session reports to."""

    async def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a message."""
        ...

    async def acknowledged(self, call: int) -> None:
        """Wait until a block is acknowledged."""
        ...


class McpSession:
    """A session with one server."""

    def __init__(self, agent: SessionPeer, request: Mapping[str, Any]) -> None:
        self.number: int = request["session"]
        self.relay = ServerRelay(agent, self.number)
        self._agent = agent
        self._request = request
        self._invalid_output = InvalidOutput()
        self._dispatcher: RelayDispatcher | None = None
        self._headers: dict[str, str] = {}
        self._stale = asyncio.Event()
        self._refused = ""

    async def run(self, pipes: tuple[int, int] | None) -> None:
        """Open the session, follow its tools, and report how it ended."""
        opened = False
        try:
            async with AsyncExitStack() as stack:
                ended = await self._open(stack, pipes)
                await self._report("opened", (await self._listing()).encoded())
                opened = True
                if self._invalid_output.problem:
                    await self._report("problem", text=self._invalid_output.problem)
                await self._follow(ended)
            reason = self._refused or "its connection ended"
        except Exception as error:
            reason = self._refused or _explain(error)
        await self._report("closed" if opened else "failed", text=self._invalid_output.broken or reason)

    async def _report(self, kind: str, body: bytes = b"", text: str = "") -> None:
        head = {"session": self.number, kind: text[:_LONGEST] or True, "fault": bool(self._invalid_output.broken)}
        await self._agent.send(head, body)

    async def _open(self, stack: AsyncExitStack, pipes: tuple[int, int] | None) -> asyncio.Event:
        read, write = await self._connect(stack, pipes)
        self._dispatcher = dispatcher = RelayDispatcher(read, write, self.relay, self._request["capabilities"])
        session = ClientSession(dispatcher=dispatcher, message_handler=self._on_notification, client_info=_CLIENT)
        await stack.enter_async_context(session)
        await session.initialize()
        if session.protocol_version is not None:
            self._headers = {MCP_PROTOCOL_VERSION_HEADER: session.protocol_version}
        # A server may refuse a way of opening and take the next one.
        self._refused = ""
        return dispatcher.ended

    async def _connect(self, stack: AsyncExitStack, pipes: tuple[int, int] | None) -> tuple[Any, Any]:
        if pipes is not None:
            return await stack.enter_async_context(open_stdio(pipes, self._invalid_output))
        url, headers = self._request["url"], self._request["headers"]
        if self._request["transport"] == "sse":
            return await stack.enter_async_context(sse_client(url, headers, _SECONDS, sse_read_timeout=86_400.0))
        hooks = {"response": [self._on_response]}
        client = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(_SECONDS, read=None), event_hooks=hooks)
        await stack.enter_async_context(client)
        return await stack.enter_async_context(streamable_http_client(url, http_client=client))

    async def _on_response(self, response: httpx2.Response) -> None:
        """Keep the status with which a start was refused, and notice that the server knows the session no more.

        The library tells of neither: of a status only that there was one, and of 404, with which the specification has
        a server that was restarted answer, only what its body says.
        """
        if self._dispatcher is None or response.request.method != "POST" or not response.is_error:
            return
        if not self._headers:
            self._refused = f"it answered HTTP {response.status_code}"
        elif response.status_code == _NOT_FOUND and _SESSION in response.request.headers:
            self._refused = "it no longer knows the session (HTTP 404), as after a restart"
            self._dispatcher.ended.set()

    async def _on_notification(self, message: IncomingMessage) -> None:
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
                    await self._report("listing", (await self._listing()).encoded())
        finally:
            over.cancel()

    async def _listing(self) -> ToolListing:
        try:
            return await list_all(self._ask)
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            # It has resources or prompts, and no tools.
            return ToolListing()

    async def _ask(self, method: str, params: dict[str, Any], on_progress: ProgressFnT | None = None) -> dict[str, Any]:
        if self._dispatcher is None:
            raise MCPError(CONNECTION_CLOSED, "the session is not open")
        options: CallOptions = {"headers": dict(self._headers)}
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self._dispatcher.send_raw_request(method, params, options)

    async def call(self, number: int, tool: str, arguments: bytes) -> None:
        """Call a tool and send its result. Cancelling this cancels the call in the server."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            values = [progress, total or 0.0, (message or "")[:_LONGEST]]
            await self._agent.send({"call": number, "progress": values})

        try:
            params = {"name": tool, "arguments": json.loads(arguments or b"{}")}
            result = await self._ask("tools/call", params, report)
            await self._deliver(number, result)
        except MCPError as error:
            lost = error.code == CONNECTION_CLOSED or error.message == _GONE or bool(self._refused)
            refusal = f"The server refused the call: {error.message} (JSON-RPC error {error.code})."
            await self._end(number, True, self._invalid_output.broken if lost else refusal, lost=lost)
        except Exception as error:
            await self._end(number, True, f"The server's answer could not be read: {_explain(error)}.")

    async def request(self, number: int, method: str, params: bytes) -> None:
        """Send any request and return its result in parts. Cancelling this cancels the request in the server."""
        try:
            result = encode(await self._ask(method, json.loads(params or b"{}")))
        except MCPError as error:
            lost = error.code == CONNECTION_CLOSED or error.message == _GONE or bool(self._refused)
            await self._end(number, True, error.message, lost=lost, code=error.code)
            return
        except Exception as error:
            await self._end(number, True, f"the server's answer could not be read: {_explain(error)}")
            return
        for at in range(0, len(result), protocol.MAX_AHEAD):
            waits = at + protocol.MAX_AHEAD < len(result)
            part = result[at : at + protocol.MAX_AHEAD]
            await self._agent.send({"call": number, "part": True, "waits": waits}, part)
            if waits:
                await self._agent.acknowledged(number)
        await self._end(number, False, "")

    async def _deliver(self, number: int, result: Mapping[str, Any]) -> None:
        failed = result.get("isError") is True
        ahead, first = protocol.MAX_AHEAD, ""
        for block in blocks_of(result):
            ahead -= len(block)
            head = {"call": number, "block": True, "waits": ahead < 0}
            await self._agent.send(head, block)
            if ahead < 0:
                await self._agent.acknowledged(number)
            if failed and not first:
                first = str(json.loads(block).get("text", ""))
        await self._end(number, failed, first, await self._structured(number, result.get("structuredContent")))

    async def _structured(self, number: int, structured: object) -> bytes:
        data = encode(cast("dict[str, Any]", structured)) if isinstance(structured, dict) else b""
        if len(data) <= _MAX_STRUCTURED:
            return data
        text = f"[The structured result was left out: its {len(data)} bytes are over the limit of {_MAX_STRUCTURED}.]"
        await self._agent.send({"call": number, "block": True, "waits": False}, encode({"type": "text", "text": text}))
        return b""

    async def _end(
        self, number: int, failed: bool, message: str, body: bytes = b"", *, lost: bool = False, code: int = 0
    ) -> None:
        head = {"call": number, "end": True, "is_error": failed, "message": message[:_LONGEST], "lost": lost}
        head |= {"code": code} if code else {}
        await self._agent.send(head, body)


def _explain(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, httpx2.HTTPStatusError):
        return f"it answered HTTP {error.response.status_code}"
    if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
        return "it ended the connection"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
