"""The process that drives the browser: its start, its requests, its end.

It runs as user code does, with the template's own Python. What it sends is not trusted: a violation of the protocol,
which `sandmeshd.agent.userland.browser.server` describes, ends it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from sandmesh.shared import frames
from sandmesh.shared.frames import FrameBuffer
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.mcp.manager.stderr_tail import StderrTail
from sandmeshd.agent.processes.spawner import ProcessGroup, ProcessSpawner

PROGRAM: Final = str(Path(__file__).parents[2] / "userland" / "browser" / "__main__.py")
_START_SECONDS: Final = 60.0
_MAX_MESSAGE: Final = 8 << 20
_ENDED: Final = (
    "The program that drives the browser ended during this call. The next call restarts both, without the open "
    "tabs, and with cookies and storage."
)


@dataclass(frozen=True)
class BrowserContext:
    """Where the process runs: the processes of user code, the template's Python, its variables and directories."""

    processes: ProcessSpawner
    python: str
    environment: Mapping[str, str]
    workspace: str
    home: str = ""
    """Where the browser's profile is kept."""
    most: int = 0
    """The largest file in bytes, 0 for any."""


class BrowserProcess(asyncio.Protocol):
    """A running process, which handles one request after another."""

    def __init__(self, process: ProcessGroup, stderr: StderrTail) -> None:
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.alive = True
        self._process = process
        self._stderr = stderr
        self._transport: asyncio.Transport | None = None
        self._buffer = FrameBuffer(_MAX_MESSAGE)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._cancelled: dict[int, asyncio.Future[None]] = {}
        self._numbers = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Handle messages; an invalid one ends the process."""
        try:
            for frame in self._buffer.feed(data):
                self._take(json.loads(frame))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.end("The program that drives the browser broke its protocol.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits for the process."""
        self._transport = None
        self.end(_ENDED)

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("up") is True:
            if not self.up.done():
                self.up.set_result(None)
            return
        if (ended := self._cancelled.pop(message["id"], None)) is not None:
            ended.set_result(None)
        reply = self._replies.pop(message["id"], None)
        if reply is not None and not reply.done():
            reply.set_result(message)

    async def request(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its reply. Cancelling this cancels the request.

        Raises:
            ToolFailure: The process ended.
        """
        number = next(self._numbers)
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        try:
            self._send({"id": number, "tool": tool, "arguments": dict(arguments)})
            return await reply
        finally:
            if self._replies.pop(number, None) is not None and self.alive:
                self._cancelled[number] = asyncio.get_running_loop().create_future()
                self._send({"cancel": number})

    async def cancelled(self) -> None:
        """Wait until the requests that were cancelled have ended."""
        if self._cancelled:
            await asyncio.wait(self._cancelled.values())

    def end(self, why: str) -> None:
        """End the process, and the browser with it."""
        if not self.alive:
            return
        self.alive = False
        if self._transport is not None:
            self._transport.abort()
        self._process.kill()
        self._stderr.close()
        if not self.up.done():
            last = "; ".join(self._stderr.lines()[-3:])
            self.up.set_exception(ToolFailure(f"The program that drives the browser did not start: {last or why}"))
            self.up.exception()
        for ended in self._cancelled.values():
            ended.cancel()
        self._cancelled.clear()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(ToolFailure(why))
                reply.exception()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._transport is None:
            if "id" in message:
                raise ToolFailure(_ENDED)
            return
        data = json.dumps(message).encode()
        self._transport.write(frames.prefix(len(data)) + data)


async def start_browser_process(context: BrowserContext) -> BrowserProcess:
    """Start the process and wait until it takes requests.

    Raises:
        ToolFailure: It does not start.
    """
    ours, theirs = socket.socketpair()
    stderr = StderrTail()
    argv = [context.python, "-I", PROGRAM]
    with theirs:
        fds = [theirs.fileno(), stderr.writer, stderr.writer]
        process = context.processes.spawn(argv, fds, cwd=context.workspace, env=context.environment, whole=True)
    stderr.close_writer()
    browser = BrowserProcess(process, stderr)
    await asyncio.get_running_loop().create_unix_connection(lambda: browser, sock=ours)
    try:
        async with asyncio.timeout(_START_SECONDS):
            await process.started
            await asyncio.shield(browser.up)
    except BaseException as error:
        browser.end(str(error) or type(error).__name__)
        if isinstance(error, TimeoutError):
            raise ToolFailure(f"The program that drives the browser did not start in {_START_SECONDS:g} s.") from None
        raise
    return browser
