"""The agent's side of the MCP client process: its start, and the messages to and from it.

What it sends is not trusted, because it runs where user code can reach it: a violation of the protocol ends it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

from sandmesh.shared.frames import FrameBuffer
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.mcp.client import protocol
from sandmeshd.agent.mcp.manager.stderr_tail import StderrTail, plain
from sandmeshd.agent.processes.spawner import ProcessGroup, ProcessSpawner

PROGRAM: Final = str(Path(__file__).parent.parent / "client" / "__main__.py")
_START_SECONDS: Final = 60.0
_MAX_UNTAKEN: Final = protocol.MAX_AHEAD + 4 * protocol.MAX_MESSAGE
"""The most bytes of a call's blocks that may wait here before the process is ended as broken."""

_MOST_PROGRESS: Final = 16

Message = tuple[dict[str, Any], bytes]


@dataclass(frozen=True)
class ClientContext:
    """Where programs of user code run, and the libraries of the MCP client process."""

    processes: ProcessSpawner
    libraries: Sequence[str]
    environment: Mapping[str, str]
    workspace: str


class SessionListener(Protocol):
    """Receives the messages about a session."""

    def on_message(self, head: Mapping[str, Any], body: bytes) -> None:
        """Handle a message."""
        ...

    def on_lost(self, why: str) -> None:
        """Handle the end of the process."""
        ...


class CallMessages:
    """The messages of one call, in order; the last one has `end`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._ready: deque[Message] = deque()
        self._untaken = 0
        self._arrival: asyncio.Future[None] | None = None

    def put(self, head: dict[str, Any], body: bytes) -> bool:
        """Queue a message. Returns: whether there is still room for more. Where many wait, a progress is replaced."""
        if "progress" in head and len(self._ready) >= _MOST_PROGRESS and "progress" in self._ready[-1][0]:
            self._ready.pop()
        self._ready.append((head, body))
        self._untaken += len(body) + 64 * ("progress" not in head)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        return self._untaken <= _MAX_UNTAKEN

    async def next(self) -> Message:
        """Wait for the next message."""
        while not self._ready:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        head, body = self._ready.popleft()
        self._untaken -= len(body) + 64 * ("progress" not in head)
        return head, body


class ClientProcess(asyncio.Protocol):
    """A running process; when it ends every session is lost, and another one is started for the next call."""

    def __init__(self, process: ProcessGroup, stderr: StderrTail, pipe_socket: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.up: asyncio.Future[None] = loop.create_future()
        self.alive = True
        self._process = process
        self._stderr = stderr
        self._pipe_socket = pipe_socket
        self._transport: asyncio.Transport | None = None
        self._buffer = FrameBuffer(protocol.MAX_MESSAGE)
        self._listeners: dict[int, SessionListener] = {}
        self._calls: dict[int, CallMessages] = {}
        self._numbers = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Handle messages; an invalid one ends the process."""
        try:
            for message in self._buffer.feed(data):
                self._take(*protocol.unpack(message))
        except (protocol.InvalidMessage, TypeError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
            self._stderr.close()
            self.end(f"the MCP client process broke its protocol: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss to every session and call."""
        self._transport = None
        self.end("the sandbox's MCP client process ended: the next call starts it again")

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        if "call" in head:
            messages = self._calls.get(head["call"])
            if messages is not None and not messages.put(head, body):
                raise ValueError("more content than was acknowledged")
        elif "session" in head:
            listener = self._listeners.get(head["session"])
            if listener is not None:
                listener.on_message(head, body)
        elif head.get("up") is True and not self.up.done():
            self.up.set_result(None)

    def open(self, listener: SessionListener, request: Mapping[str, Any], pipes: tuple[int, int] | None) -> int:
        """Open a session; `pipes` are the server's standard input and output, which remain the caller's.

        Raises:
            ToolFailure: The process takes nothing.
        """
        number = next(self._numbers)
        self._listeners[number] = listener
        if pipes is not None:
            try:
                socket.send_fds(self._pipe_socket, [str(number).encode()], pipes)
            except OSError as error:
                raise ToolFailure(f"The program that speaks MCP takes no more servers: {error.strerror}.") from None
        self._send({**request, "op": "open", "session": number})
        return number

    def close(self, session: int) -> None:
        """Close a session; its listener receives nothing more."""
        if self._listeners.pop(session, None) is not None:
            self._send({"op": "close", "session": session})

    def call(self, session: int, tool: str, arguments: bytes) -> CallMessages:
        """Call a tool."""
        messages = CallMessages(next(self._numbers))
        self._calls[messages.number] = messages
        self._send({"op": "call", "session": session, "call": messages.number, "tool": tool}, arguments)
        if not self.alive:
            _end_lost(messages, "the MCP client process ended")
        return messages

    def request(self, session: int, method: str, params: bytes) -> CallMessages:
        """Send a request of any other kind."""
        messages = CallMessages(next(self._numbers))
        self._calls[messages.number] = messages
        self._send({"op": "request", "session": session, "call": messages.number, "method": method}, params)
        if not self.alive:
            _end_lost(messages, "the MCP client process ended")
        return messages

    def reply(self, session: int, request: int, body: bytes) -> None:
        """Reply to a request of a server."""
        self._send({"op": "reply", "session": session, "request": request}, body)

    def cancel(self, messages: CallMessages) -> None:
        """Cancel a call."""
        self._send({"op": "cancel", "call": messages.number})

    def acknowledge(self, messages: CallMessages) -> None:
        """Acknowledge the last block of a call."""
        self._send({"op": "took", "call": messages.number})

    def forget(self, messages: CallMessages) -> None:
        """Hear no more of a call."""
        self._calls.pop(messages.number, None)

    def end(self, why: str) -> None:
        """End the host and tell everybody why."""
        if not self.alive:
            return
        self.alive = False
        self._process.kill()
        if self._transport is not None:
            self._transport.abort()
        self._pipe_socket.close()
        self._stderr.close()
        if not self.up.done():
            said = "; ".join(self._stderr.lines()[-3:])
            self.up.set_exception(ToolFailure(f"The program that speaks MCP did not start: {said or why}"))
            self.up.exception()
        for listener in list(self._listeners.values()):
            listener.on_lost(why)
        for messages in list(self._calls.values()):
            _end_lost(messages, why)

    def _send(self, head: dict[str, Any], body: bytes = b"") -> None:
        if self._transport is not None:
            self._transport.write(protocol.pack(head, body))


def _end_lost(messages: CallMessages, why: str) -> None:
    messages.put({"end": True, "is_error": True, "lost": True, "message": why}, b"")


async def start_client_process(context: ClientContext) -> ClientProcess:
    """Start the process and wait until it takes servers.

    Raises:
        ToolFailure: It does not start.
    """
    ours, theirs = socket.socketpair()
    pipe_socket, client_pipe_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stderr = StderrTail()
    argv = [sys.executable, "-I", "-S", PROGRAM, *context.libraries]
    with theirs, client_pipe_socket:
        fds = [theirs.fileno(), client_pipe_socket.fileno(), stderr.writer]
        process = context.processes.spawn(argv, fds, cwd="/", env=context.environment, whole=True)
    stderr.close_writer()
    pipe_socket.setblocking(False)
    client = ClientProcess(process, stderr, pipe_socket)
    await asyncio.get_running_loop().create_unix_connection(lambda: client, sock=ours)
    try:
        async with asyncio.timeout(_START_SECONDS):
            await process.started
            await asyncio.shield(client.up)
    except BaseException as error:
        client.end("it took too long" if isinstance(error, TimeoutError) else str(error))
        if isinstance(error, TimeoutError):
            raise ToolFailure(f"The MCP client process did not start within {_START_SECONDS:g} s.") from None
        raise
    return client


def open_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Open a server's pipes: its own ends (input, output), and those of the MCP client process."""
    in_reader, in_writer = os.pipe2(os.O_CLOEXEC)
    out_reader, out_writer = os.pipe2(os.O_CLOEXEC)
    return (in_reader, out_writer), (in_writer, out_reader)


def _is_tool_name(name: object) -> bool:
    # The MCP client process has checked that, but user code can inspect and change it.
    return isinstance(name, str) and protocol.CONTROLS.search(name) is None


def parse_listing(body: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """Parse the tools and problems of a listing.

    Raises:
        ValueError: It is not a listing.
    """
    try:
        listing = json.loads(body)
    except RecursionError:
        raise ValueError("a list of tools is too deep") from None
    tools = [tool for tool in listing["tools"] if _is_tool_name(tool["name"]) and isinstance(tool["inputSchema"], dict)]
    for tool in tools:
        tool.update({key: plain(str(tool.get(key, ""))) for key in ("name", "title", "description")})
    return tools, [plain(str(problem)) for problem in listing["problems"]]
