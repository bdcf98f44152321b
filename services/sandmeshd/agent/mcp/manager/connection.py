"""One MCP client's connection to the servers of the sandbox: a call whose input and output are lines of JSON.

To the servers: `{"id", "server", "method", "params"}` is a request, `{"cancel": id}` gives it up, `{"reply": request,
"result" or "error"}` answers a server. To the client: `{"id", "result" or "error"}` is an answer, `{"server", "method",
"params"}` a notification, and with `request` a request of that server, `{"cancelled": request}` gives it up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import CHUNK, Outcome, RunningCall
from sandmeshd.agent.calls.stdin import ProcessInput
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.streams import put, unless_stopped
from sandmeshd.agent.mcp.manager.clients import INTERNAL_ERROR, METHOD_NOT_FOUND, McpClients
from sandmeshd.agent.mcp.manager.requests import RequestRefused, send_request
from sandmeshd.agent.mcp.manager.server import Server

METHODS: Final = frozenset(
    {
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
    }
)
"""Requests that are passed on; tools are called as every tool of the sandbox."""
_LONGEST_LINE: Final = 16 << 20
_MOST_REQUESTS: Final = 256
_MOST_UNSENT: Final = 1000

Find = Callable[[str], Server | None]


class ConnectedClient:
    """A client that is connected."""

    def __init__(
        self, call: RunningCall, arriving: ProcessInput, clients: McpClients, capabilities: Mapping[str, Any]
    ) -> None:
        self.capabilities = capabilities
        self._call = call
        self._input = arriving
        self._clients = clients
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._rest = b""
        self._requests: dict[int, asyncio.Task[None]] = {}

    async def run(self, find: Find) -> Outcome:
        """Serve until the client ends its input, or the call is stopped."""
        self._clients.add(self)
        try:
            self._input.deliver_to(lambda data: self._receive(data, find))
            while line := await unless_stopped(self._call, self._unsent.get()):
                for at in range(0, len(line), CHUNK):
                    await put(self._call, line[at : at + CHUNK])
        except CallStopped:
            return Outcome(reason=self._call.stop_reason or pb.END_REASON_CANCELLED)
        finally:
            self._clients.remove(self)
            for task in self._requests.values():
                task.cancel()
        return Outcome()

    def send(self, message: Mapping[str, Any], *, needed: bool) -> None:
        """Send a message; one that is not `needed` is left out when the client reads too slowly."""
        if needed or self._unsent.qsize() < _MOST_UNSENT:
            self._unsent.put_nowait(json.dumps(message).encode() + b"\n")

    def _receive(self, data: bytes, find: Find) -> None:
        if not data:
            self._unsent.put_nowait(b"")
            return
        self._input.mark_written()
        *lines, self._rest = (self._rest + data).split(b"\n")
        broken = len(self._rest) > _LONGEST_LINE
        try:
            for line in lines:
                self._take(json.loads(line), find)
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
            broken = True
        if broken:
            # It does not speak this protocol.
            self._call.stop(pb.END_REASON_CANCELLED)

    def _take(self, message: dict[str, Any], find: Find) -> None:
        if "reply" in message:
            self._clients.answer(self, int(message["reply"]), message)
        elif "cancel" in message:
            task = self._requests.get(int(message["cancel"]))
            if task is not None:
                task.cancel()
        else:
            number, server, method = int(message["id"]), str(message["server"]), str(message["method"])
            params = json.dumps(message.get("params") or {}).encode()
            task = asyncio.create_task(self._answer(number, find(server), method, params))
            self._requests[number] = task
            task.add_done_callback(lambda _: self._requests.pop(number, None))

    def _allowed(self, server: Server | None, method: str) -> Server:
        if server is None or method not in METHODS:
            missing = f"{method} is not passed on" if server else "the sandbox has no such MCP server"
            raise RequestRefused(METHOD_NOT_FOUND, missing)
        if len(self._requests) > _MOST_REQUESTS:
            raise RequestRefused(INTERNAL_ERROR, f"{_MOST_REQUESTS} requests are under way: wait for some")
        return server

    async def _answer(self, number: int, server: Server | None, method: str, params: bytes) -> None:
        try:
            answer: dict[str, Any] = {"result": await send_request(self._allowed(server, method), method, params)}
        except RequestRefused as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        except ToolFailure as error:
            answer = {"error": {"code": INTERNAL_ERROR, "message": str(error)}}
        self.send({"id": number, **answer}, needed=True)


def read_capabilities(value: object) -> dict[str, Any]:
    """Return the capabilities that count: sampling and elicitation."""
    declared = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return {name: declared[name] for name in ("sampling", "elicitation") if isinstance(declared.get(name), dict)}
