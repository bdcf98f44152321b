"""The sessions and calls of the MCP client process, and the agent's messages that drive them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from sandmesh.shared import frames
from sandmeshd.agent.mcp.client import protocol
from sandmeshd.agent.mcp.client.session import McpSession

_PIPES: Final = 2


class PassedPipes:
    """The pipes of servers, which arrive by session on a separate socket before the session is opened."""

    def __init__(self, passed: socket.socket) -> None:
        self._socket = passed
        self._pipes: dict[int, tuple[int, int]] = {}
        passed.setblocking(False)

    def take(self, session: int) -> tuple[int, int]:
        """Return a server's standard input and output."""
        with suppress(BlockingIOError):
            while True:
                data, fds, _, _ = socket.recv_fds(self._socket, 64, _PIPES)
                if not data:
                    break
                self._pipes[int(data)] = (fds[0], fds[1])
        return self._pipes.pop(session)


class McpSessions:
    """All sessions and calls."""

    def __init__(self, writer: asyncio.StreamWriter, passed: PassedPipes) -> None:
        self._writer = writer
        self._passed = passed
        self._sessions: dict[int, McpSession] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._acknowledgements: dict[int, asyncio.Event] = {}

    async def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a message to the agent."""
        self._writer.write(protocol.pack(head, body))
        await self._writer.drain()

    async def acknowledged(self, call: int) -> None:
        """Wait until the agent has acknowledged the last block of a call."""
        event = self._acknowledgements.setdefault(call, asyncio.Event())
        await event.wait()
        event.clear()

    def take(self, head: dict[str, Any], body: bytes) -> None:
        """Handle a message of the agent."""
        op = head["op"]
        if op == "open":
            session = McpSession(self, head)
            self._sessions[session.number] = session
            pipes = self._passed.take(session.number) if head["transport"] == "stdio" else None
            self._begin(("session", session.number), session.run(pipes))
        elif op in ("call", "request"):
            self._begin(("call", head["call"]), self._work(head, body))
        elif op == "reply":
            if head["session"] in self._sessions:
                self._sessions[head["session"]].relay.reply(head["request"], body)
        elif op == "took":
            self._acknowledgements.setdefault(head["call"], asyncio.Event()).set()
        else:
            self._end((("session", head["session"])) if op == "close" else ("call", head["call"]))

    async def _work(self, head: dict[str, Any], body: bytes) -> None:
        number, session = head["call"], self._sessions.get(head["session"])
        if session is None:
            over = {"is_error": True, "lost": True, "message": "its session is over"}
            await self.send({"call": number, "end": True, **over})
        elif head["op"] == "call":
            await session.call(number, head["tool"], body)
        else:
            await session.request(number, head["method"], body)

    def _begin(self, key: tuple[str, int], coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[key] = asyncio.create_task(coroutine)
        task.add_done_callback(lambda _: self._forget(key))

    def _end(self, key: tuple[str, int]) -> None:
        if key in self._tasks:
            self._tasks[key].cancel()

    def _forget(self, key: tuple[str, int]) -> None:
        self._tasks.pop(key, None)
        if key[0] == "call":
            self._acknowledgements.pop(key[1], None)
        else:
            self._sessions.pop(key[1], None)


async def _serve(channel: socket.socket, passed: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    sessions = McpSessions(writer, PassedPipes(passed))
    await sessions.send({"up": True})
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            sessions.take(*protocol.unpack(await frames.read(reader, frames.MAX_MESSAGE)))


def serve(channel: socket.socket, passed: socket.socket) -> None:
    """Serve until the agent exits."""
    asyncio.run(_serve(channel, passed))
