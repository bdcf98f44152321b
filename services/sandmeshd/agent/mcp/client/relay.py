"""Requests and notifications of a server to its client, which the agent carries to a client of the sandbox."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, cast

import anyio.abc
from mcp.shared.dispatcher import CallOptions, DispatchContext, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR

from sandmeshd.agent.mcp.client import protocol
from sandmeshd.agent.mcp.client.result_blocks import encode

REQUESTS: Final = frozenset({"sampling/createMessage", "elicitation/create"})
NOTIFICATIONS: Final = frozenset(
    {
        "notifications/message",
        "notifications/resources/updated",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
        "notifications/elicitation/complete",
    }
)
_MAX_BODY: Final = protocol.MAX_MESSAGE - protocol.MAX_HEAD
_MAX_WAITING: Final = 64


class RelayPeer(Protocol):
    """The peer that messages go to."""

    async def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a message."""
        ...


class ServerRelay:
    """What one server asks and reports, and the replies."""

    def __init__(self, agent: RelayPeer, session: int) -> None:
        self._agent = agent
        self._session = session
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Pass on a request and wait for the reply; cancelling this cancels it at the client.

        Raises:
            MCPError: It was refused.
        """
        body = encode(params or {})
        if len(body) > _MAX_BODY or len(self._waiting) >= _MAX_WAITING:
            raise MCPError(INTERNAL_ERROR, f"at most {_MAX_WAITING} requests wait, each of at most {_MAX_BODY} bytes")
        number = next(self._numbers)
        reply = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._agent.send({"session": self._session, "message": method, "request": number}, body)
            return _result(await reply)
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await self._agent.send({"session": self._session, "cancelled": number})
            raise
        finally:
            del self._waiting[number]

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass on a notification; one that is too large is left out."""
        body = encode(params or {})
        if len(body) <= _MAX_BODY:
            await self._agent.send({"session": self._session, "message": method}, body)

    def reply(self, number: int, body: bytes) -> None:
        """Settle a request."""
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(json.loads(body))


def _result(reply: Mapping[str, Any]) -> dict[str, Any]:
    error = reply.get("error")
    if error is not None:
        raise MCPError(error["code"], error["message"], error.get("data"))
    return cast("dict[str, Any]", reply["result"])


class RelayDispatcher(JSONRPCDispatcher[TransportContext]):
    """The library's, which passes a server's messages on as they came, and says when its connection ended."""

    def __init__(self, read: Any, write: Any, relay: ServerRelay, capabilities: Mapping[str, Any]) -> None:
        super().__init__(read, write)
        self.ended = asyncio.Event()
        self._relay = relay
        self._capabilities = dict(capabilities)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        """Send a request; the handshake has the capabilities of the sandbox's clients."""
        if method == "initialize":
            params = {**(params or {}), "capabilities": self._capabilities}
        return await super().send_raw_request(method, params, opts, **more)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run until the connection ends."""

        async def request(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if method in REQUESTS:
                return await self._relay.request(method, params)
            return await on_request(context, method, params)

        async def notify(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> None:
            if method in NOTIFICATIONS:
                await self._relay.notify(method, params)
            await on_notify(context, method, params)

        try:
            await super().run(request, notify, on_notify_intercept, task_status=task_status)
        finally:
            self.ended.set()
