"""The agent's side of the MCP host: its process, the frames to and from it, who waits for which.

What it sends is not to be trusted: it runs where user code can reach it. One that breaks the form is ended.
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
from sandmeshd.agent.mcp.manager.stderr_tail import LastWords, plain
from sandmeshd.agent.processes.spawner import Process, Processes

PROGRAM: Final = str(Path(__file__).parent.parent / "client" / "__main__.py")
_START_SECONDS: Final = 60.0
_MOST_UNTAKEN: Final = protocol.MAX_AHEAD + 4 * protocol.MAX_MESSAGE
"""The most bytes that a call's blocks may take here before the host is held to be broken."""

Frame = tuple[dict[str, Any], bytes]


@dataclass(frozen=True)
class Home:
    """Where programs of user code run, and the libraries of the host."""

    processes: Processes
    libraries: Sequence[str]
    environment: Mapping[str, str]
    workspace: str


class Listener(Protocol):
    """Who hears what the host says of a session."""

    def heard(self, head: Mapping[str, Any], body: bytes) -> None:
        """Take a frame."""
        ...

    def lost(self, why: str) -> None:
        """Learn that the host is gone."""
        ...


class Frames:
    """The frames of one call, as they come; the end is a frame with `end`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._ready: deque[Frame] = deque()
        self._untaken = 0
        self._news: asyncio.Future[None] | None = None

    def put(self, head: dict[str, Any], body: bytes) -> bool:
        """Keep a frame. Returns: whether there is still room for more. A progress that nobody took yet is replaced."""
        if "progress" in head and self._ready and "progress" in self._ready[-1][0]:
            self._ready.pop()
        self._ready.append((head, body))
        self._untaken += len(body) + 64 * ("progress" not in head)
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        return self._untaken <= _MOST_UNTAKEN

    async def next(self) -> Frame:
        """Wait for the next frame."""
        while not self._ready:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        head, body = self._ready.popleft()
        self._untaken -= len(body) + 64 * ("progress" not in head)
        return head, body


class Host(asyncio.Protocol):
    """A host that runs; when it ends every session is lost, and another one is started for the next."""

    def __init__(self, process: Process, words: LastWords, handing: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.up: asyncio.Future[None] = loop.create_future()
        self.alive = True
        self._process = process
        self._words = words
        self._handing = handing
        self._transport: asyncio.Transport | None = None
        self._buffer = FrameBuffer(protocol.MAX_MESSAGE)
        self._listeners: dict[int, Listener] = {}
        self._calls: dict[int, Frames] = {}
        self._numbers = itertools.count(1)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take frames; what is none ends the host."""
        try:
            for message in self._buffer.feed(data):
                self._take(*protocol.unpack(message))
        except (protocol.InvalidMessage, TypeError, ValueError, KeyError) as error:
            self._words.close()
            self.end(f"the program that speaks MCP sent what it may not: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody."""
        self._transport = None
        self.end("the program that speaks MCP in the sandbox ended: the next call starts it again")

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        if "call" in head:
            frames = self._calls.get(head["call"])
            if frames is not None and not frames.put(head, body):
                raise ValueError("more than was asked for")
        elif "session" in head:
            listener = self._listeners.get(head["session"])
            if listener is not None:
                listener.heard(head, body)
        elif head.get("up") is True and not self.up.done():
            self.up.set_result(None)

    # What servers call.

    def open(self, listener: Listener, asked: Mapping[str, Any], pipes: tuple[int, int] | None) -> int:
        """Have a session opened; `pipes` are the server's standard input and output, which stay the caller's.

        Raises:
            ToolFailure: The host takes nothing.
        """
        number = next(self._numbers)
        self._listeners[number] = listener
        if pipes is not None:
            try:
                socket.send_fds(self._handing, [str(number).encode()], pipes)
            except OSError as error:
                raise ToolFailure(f"The program that speaks MCP takes no more servers: {error.strerror}.") from None
        self._send({**asked, "op": "open", "session": number})
        return number

    def close(self, session: int) -> None:
        """Have a session closed; nothing more is heard of it."""
        if self._listeners.pop(session, None) is not None:
            self._send({"op": "close", "session": session})

    def call(self, session: int, tool: str, arguments: bytes) -> Frames:
        """Have a tool called."""
        frames = Frames(next(self._numbers))
        self._calls[frames.number] = frames
        self._send({"op": "call", "session": session, "call": frames.number, "tool": tool}, arguments)
        if not self.alive:
            _lose(frames, "the program that speaks MCP ended")
        return frames

    def cancel(self, frames: Frames) -> None:
        """Have a call cancelled."""
        self._send({"op": "cancel", "call": frames.number})

    def took(self, frames: Frames) -> None:
        """Say that a block has its place."""
        self._send({"op": "took", "call": frames.number})

    def forget(self, frames: Frames) -> None:
        """Hear no more of a call."""
        self._calls.pop(frames.number, None)

    def end(self, why: str) -> None:
        """End the host and tell everybody why."""
        if not self.alive:
            return
        self.alive = False
        self._process.kill()
        if self._transport is not None:
            self._transport.abort()
        self._handing.close()
        self._words.close()
        if not self.up.done():
            said = "; ".join(self._words.lines()[-3:])
            self.up.set_exception(ToolFailure(f"The program that speaks MCP did not start: {said or why}"))
            self.up.exception()
        for listener in list(self._listeners.values()):
            listener.lost(why)
        for frames in list(self._calls.values()):
            _lose(frames, why)

    def _send(self, head: dict[str, Any], body: bytes = b"") -> None:
        if self._transport is not None:
            self._transport.write(protocol.pack(head, body))


def _lose(frames: Frames, why: str) -> None:
    frames.put({"end": True, "is_error": True, "lost": True, "message": why}, b"")


async def open_host(home: Home) -> Host:
    """Start the host and wait until it takes servers.

    Raises:
        ToolFailure: It does not start.
    """
    ours, theirs = socket.socketpair()
    handing, handed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = LastWords()
    argv = [sys.executable, "-I", "-S", PROGRAM, *home.libraries]
    with theirs, handed:
        fds = [theirs.fileno(), handed.fileno(), words.writer]
        process = home.processes.spawn(argv, fds, cwd="/", env=home.environment, whole=True)
    words.close_writer()
    handing.setblocking(False)
    host = Host(process, words, handing)
    await asyncio.get_running_loop().create_unix_connection(lambda: host, sock=ours)
    try:
        async with asyncio.timeout(_START_SECONDS):
            await process.started
            await asyncio.shield(host.up)
    except BaseException as error:
        host.end("it took too long" if isinstance(error, TimeoutError) else str(error))
        if isinstance(error, TimeoutError):
            raise ToolFailure(f"The program that speaks MCP did not start within {_START_SECONDS:g} s.") from None
        raise
    return host


def in_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Make a server's pipes: its own ends (input, output), and the host's."""
    in_reader, in_writer = os.pipe2(os.O_CLOEXEC)
    out_reader, out_writer = os.pipe2(os.O_CLOEXEC)
    return (in_reader, out_writer), (in_writer, out_reader)


def read_tools(body: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """Read the tools and problems that a host told.

    Raises:
        ValueError: It told something else.
    """
    try:
        told = json.loads(body)
    except RecursionError:
        raise ValueError("a list of tools is too deep") from None
    tools = [tool for tool in told["tools"] if isinstance(tool["name"], str) and isinstance(tool["inputSchema"], dict)]
    for tool in tools:
        tool.update({key: plain(str(tool.get(key, ""))) for key in ("name", "title", "description")})
    return tools, [plain(str(problem)) for problem in told["problems"]]
