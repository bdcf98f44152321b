"""The MCP clients of the sandbox, which are outside of it: what servers ask and report goes to them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
_NEEDED: Final = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation"}
"""The capability of a client that a request needs."""

Reply = Callable[[bytes], None]
"""Sends a reply, an object of JSON with `result` or `error`, to the server that requested it."""


class McpClient(Protocol):
    """One client, as long as it is connected."""

    capabilities: Mapping[str, Any]
    """What it handles, as in the protocol's handshake."""

    def send(self, message: Mapping[str, Any], *, needed: bool) -> None:
        """Send a message; one that is not `needed` may be left out when the client reads too slowly."""
        ...


@dataclass(frozen=True)
class PendingRequest:
    """A request of a server that a client handles."""

    client: McpClient
    server: str
    key: tuple[int, int]
    """Which of the server's it is: its session and its number there."""
    reply: Reply


class McpClients:
    """All clients. A request goes to the one that connected last among those that handle it."""

    def __init__(self) -> None:
        self._clients: list[McpClient] = []
        self._pending: dict[int, PendingRequest] = {}
        self._numbers = itertools.count(1)

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the clients handle together; servers are shown it when they start."""
        return {name: value for client in self._clients for name, value in client.capabilities.items()}

    def add(self, client: McpClient) -> None:
        """Add a client."""
        self._clients.append(client)

    def remove(self, client: McpClient) -> None:
        """Remove a client; what it had not answered is refused."""
        self._clients.remove(client)
        for number, pending in list(self._pending.items()):
            if pending.client is client:
                self._settle(number, refusal(INTERNAL_ERROR, "the MCP client that handled it is gone"))

    def report(self, server: str, method: str, params: object) -> None:
        """Pass on a notification of a server to all."""
        for client in self._clients:
            client.send({"server": server, "method": method, "params": params}, needed=False)

    def request(self, server: str, key: tuple[int, int], message: tuple[str, object], reply: Reply) -> None:
        """Pass on a request of a server, its method and params; `reply` is called once, perhaps before this returns."""
        method, params = message
        capability = _NEEDED.get(method, "")
        client = next((client for client in reversed(self._clients) if capability in client.capabilities), None)
        if client is None:
            reply(refusal(METHOD_NOT_FOUND, f"no MCP client of this sandbox offers {capability or method}"))
            return
        number = next(self._numbers)
        self._pending[number] = PendingRequest(client, server, key, reply)
        client.send({"server": server, "method": method, "params": params, "request": number}, needed=True)

    def cancel(self, key: tuple[int, int]) -> None:
        """Pass on that a server waits no more for a request."""
        for number, pending in list(self._pending.items()):
            if pending.key == key:
                del self._pending[number]
                pending.client.send({"cancelled": number}, needed=True)

    def cancel_all(self, session: int) -> None:
        """Pass on that a server has ended."""
        for key in [pending.key for pending in self._pending.values() if pending.key[0] == session]:
            self.cancel(key)

    def answer(self, client: McpClient, number: int, reply: Mapping[str, Any]) -> None:
        """Pass on a client's reply to a request that it was sent."""
        pending = self._pending.get(number)
        if pending is not None and pending.client is client:
            kept = {name: reply[name] for name in ("result", "error") if isinstance(reply.get(name), dict)}
            self._settle(number, json.dumps(kept).encode() if kept else refusal(INTERNAL_ERROR, "an empty reply"))

    def _settle(self, number: int, reply: bytes) -> None:
        self._pending.pop(number).reply(reply)


def refusal(code: int, message: str) -> bytes:
    """Return the reply to a request without a handler."""
    return json.dumps({"error": {"code": code, "message": message}}).encode()
