"""The clients of a kernel: a WebSocket for each notebook that is open on it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from aiohttp import WSCloseCode, web

from sandmeshd.facades.jupyter.messages import V1, NotebookMessage, Outgoing


class NotebookClient:
    """A client of a kernel. One that no longer reads holds its kernel back until its connection is given up."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self.protocol = socket.ws_protocol

    async def send(self, message: Outgoing) -> None:
        """Send a message; nothing where the connection has ended."""
        with suppress(ConnectionError, RuntimeError):
            if self.protocol == V1:
                await self._socket.send_bytes(message.binary())
            else:
                await self._socket.send_str(message.text())

    async def close(self, reason: str, code: int = WSCloseCode.GOING_AWAY) -> None:
        """Close the connection."""
        with suppress(ConnectionError, RuntimeError):
            await self._socket.close(code=code, message=reason.encode()[:120].decode(errors="ignore").encode())


class Audience(set[NotebookClient]):
    """The clients of one kernel, and what it sends them."""

    def __init__(self) -> None:
        super().__init__()
        self._session = uuid.uuid4().hex

    async def publish(self, kind: str, content: Mapping[str, Any], parent: Mapping[str, Any]) -> None:
        """Send all of them a message that belongs to the request with this header."""
        message = Outgoing("iopub", kind, content, parent, self._session)
        for client in list(self):
            await client.send(message)

    async def reply(self, client: NotebookClient, message: NotebookMessage, content: Mapping[str, Any]) -> None:
        """Send a client the reply to its request."""
        kind = f"{message.kind.removesuffix('_request')}_reply"
        await client.send(Outgoing(message.channel, kind, content, message.header, self._session))

    async def request_input(self, client: NotebookClient, message: NotebookMessage, content: Mapping[str, Any]) -> None:
        """Request a line from the client whose request it is for."""
        await client.send(Outgoing("stdin", "input_request", content, message.header, self._session))

    async def close(self, reason: str) -> None:
        """Close their connections."""
        for client in list(self):
            await client.close(reason)
