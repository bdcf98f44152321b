"""A connection to the MCP servers of a sandbox as their client: prompts, completions, resources, and their requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from sandmesh._calls.feed import Feed
from sandmesh.errors import CallFinished, ProtocolMismatch, SandmeshError, WrongState
from sandmesh.events import Output

log = logging.getLogger("sandmesh")

Params = dict[str, Any]
RequestHandler = Callable[[str, str, Params], Awaitable[Params]]
"""Handles a request of a server: its name, the method and the params; returns the result."""
NotificationHandler = Callable[[str, str, Params], Awaitable[None]]
"""Handles a notification of a server: its name, the method and the params."""

INTERNAL_ERROR = "-32603"
METHOD_NOT_FOUND = "-32601"


@dataclass(frozen=True, slots=True)
class Handlers:
    """What a client does with the messages of servers."""

    on_request: RequestHandler | None = None
    on_notification: NotificationHandler | None = None


@dataclass(frozen=True, slots=True)
class _Received:
    """A request or notification of a server."""

    server: str
    method: str
    params: Params


class McpConnectionAsync:
    """A client of a sandbox's MCP servers. Closing it disconnects; the servers stay."""

    def __init__(self, feed: Feed, handlers: Handlers) -> None:
        self._feed = feed
        self._handlers = handlers
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Params]] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._ended: SandmeshError | None = None
        self._writing = asyncio.Lock()
        self._reader = asyncio.create_task(self._read(), name="sandmesh-mcp-connection")

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return self._ended is None

    async def request(self, server: str, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request of the Model Context Protocol to a server and return its result, as the protocol has it.

        Methods are those for prompts, completions, resources and the level of logging, like "prompts/get". A server
        that does not run is started.

        Raises:
            WrongState: The server refused it; `facts["code"]` is the code of JSON-RPC.
        """
        if self._ended is not None:
            raise self._ended
        number = next(self._numbers)
        answer: asyncio.Future[Params] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._send({"id": number, "server": server, "method": method, "params": dict(params or {})})
            return await answer
        except asyncio.CancelledError:
            self._begin(("cancel", number), self._send({"cancel": number}))
            raise
        finally:
            del self._waiting[number]

    async def aclose(self) -> None:
        """Disconnect."""
        self._reader.cancel()
        await asyncio.wait([self._reader])

    async def __aenter__(self) -> McpConnectionAsync:
        """Return itself."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Disconnect."""
        await self.aclose()

    async def _read(self) -> None:
        ended: SandmeshError = CallFinished("the connection to the sandbox's MCP servers was closed")
        rest = b""
        try:
            while events := await self._feed.take():
                pieces = [rest, *(event.data for event in events if isinstance(event, Output))]
                *lines, rest = b"".join(pieces).split(b"\n")
                for line in lines:
                    self._take_line(line)
            ended = CallFinished("the connection to the sandbox's MCP servers ended")
        except SandmeshError as error:
            ended = error
        finally:
            self._close(ended)

    def _close(self, ended: SandmeshError) -> None:
        self._ended = ended
        self._feed.cancel()
        for task in self._tasks.values():
            task.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ended)

    def _take_line(self, line: bytes) -> None:
        try:
            self._take(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ProtocolMismatch("the sandbox's MCP servers sent what is not a message of theirs") from None

    def _take(self, message: Params) -> None:
        if "id" in message:
            waiting = self._waiting.get(message["id"])
            if waiting is not None and not waiting.done():
                _settle(waiting, message)
        elif "cancelled" in message:
            task = self._tasks.get(("request", message["cancelled"]))
            if task is not None:
                task.cancel()
        elif "request" in message:
            received = _Received(message["server"], message["method"], message["params"])
            self._begin(("request", message["request"]), self._reply(message["request"], received))
        elif self._handlers.on_notification is not None:
            received = _Received(message["server"], message["method"], message["params"])
            self._begin(object(), self._notify(self._handlers.on_notification, received))

    async def _notify(self, handler: NotificationHandler, received: _Received) -> None:
        try:
            await handler(received.server, received.method, received.params)
        except Exception:
            log.exception("the handler of notifications of MCP servers failed")

    async def _reply(self, number: object, received: _Received) -> None:
        handler = self._handlers.on_request or _refuse
        try:
            reply: Params = {"result": await handler(received.server, received.method, received.params)}
        except SandmeshError as error:
            reply = {"error": {"code": int(error.facts.get("code", INTERNAL_ERROR)), "message": error.message}}
        except Exception as error:
            log.exception("the handler of requests of MCP servers failed")
            reply = {"error": {"code": int(INTERNAL_ERROR), "message": f"{type(error).__name__}: {error}"}}
        await self._send({"reply": number, **reply})

    async def _send(self, message: Params) -> None:
        async with self._writing:
            await self._feed.write(json.dumps(message).encode() + b"\n")

    def _begin(self, key: object, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[key] = asyncio.create_task(work)
        task.add_done_callback(lambda done: self._finished(key, done))

    def _finished(self, key: object, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and task.exception() is not None:
            log.debug("a message to MCP servers was not sent: %s", task.exception())


async def _refuse(server: str, method: str, params: Params) -> Params:
    raise WrongState(f"this client has no handler for {method} of MCP servers", {"code": METHOD_NOT_FOUND})


def _settle(waiting: asyncio.Future[Params], answer: Params) -> None:
    error = answer.get("error")
    if error is None:
        waiting.set_result(answer["result"])
    else:
        facts = {"state": "REFUSED", "code": str(error["code"])}
        waiting.set_exception(WrongState(error["message"], facts))
