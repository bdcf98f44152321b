"""The current page as a stream of JPEGs to a pipe, for as long as it is recorded.

Images come at a steady rate, the last one again where nothing new was drawn, no tab is open, or the browser has died.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from playwright.async_api import Error

from sandmeshd.agent.userland.browser.answer import Answer, BrowserFailure

if TYPE_CHECKING:
    from sandmeshd.agent.userland.browser.session import BrowserSession
    from sandmeshd.agent.userland.browser.tab import Tab

_QUALITY: Final = 70
_SECONDS: Final = 5.0
_PIPE_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.02


class Screencast:
    """The stream of one browser."""

    def __init__(self) -> None:
        self._image = b""
        self._tab: Tab | None = None
        self._cdp: Any = None  # its methods are partly untyped
        self._streaming: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, session: BrowserSession, path: str, fps: int) -> None:
        """Start the browser where it does not run, and stream to a pipe that something reads.

        Raises:
            BrowserFailure: The browser does not start, or nothing reads the pipe.
        """
        await self.stop()
        tab = await session.tab()
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                self._image = await tab.page.screenshot(type="jpeg", quality=_QUALITY)
        pipe = os.fdopen(await _opened(path), "wb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, pipe)
        self._streaming = asyncio.create_task(self._stream(session, transport, 1 / fps))

    async def stop(self) -> None:
        """End the stream."""
        task, self._streaming = self._streaming, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _stream(self, session: BrowserSession, pipe: asyncio.WriteTransport, pause: float) -> None:
        try:
            while not pipe.is_closing():
                if session.current is not self._tab:
                    self._follow(session.current)
                # Where the reader is slow it has the newest image next, not all that it missed.
                if self._image and not pipe.get_write_buffer_size():
                    pipe.write(self._image)
                await asyncio.sleep(pause)
        finally:
            pipe.abort()
            self._follow(None)

    def _follow(self, tab: Tab | None) -> None:
        """Show another tab, or none."""
        left, self._tab, self._cdp = self._cdp, tab, None
        if left is not None:
            self._spawn(_ignore(left.detach()))
        if tab is not None:
            self._spawn(_ignore(self._show(tab)))

    async def _show(self, tab: Tab) -> None:
        cdp: Any = await tab.page.context.new_cdp_session(tab.page)
        if tab is not self._tab:
            return
        self._cdp = cdp
        cdp.on("Page.screencastFrame", self._on_image)
        await cdp.send("Page.startScreencast", {"format": "jpeg", "quality": _QUALITY})

    def _on_image(self, event: dict[str, Any]) -> None:
        self._image = base64.b64decode(event["data"])
        if self._cdp is not None:
            self._spawn(_ignore(self._cdp.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _opened(path: str) -> int:
    """Open a pipe once something reads it."""
    until = time.monotonic() + _PIPE_SECONDS
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENXIO) or time.monotonic() > until:
                raise BrowserFailure(f"The page cannot be recorded: {path}: {error.strerror}.") from None
        await asyncio.sleep(_PAUSE_SECONDS)


async def _ignore(work: Coroutine[Any, Any, Any]) -> None:
    """Await what may fail because the page or the browser has gone."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            await work


async def screencast(session: BrowserSession, arguments: dict[str, Any], _: Answer) -> None:
    """Stream to the pipe at a path; without one, end the stream."""
    if arguments["path"]:
        await session.screencast.start(session, arguments["path"], arguments["fps"])
    else:
        await session.screencast.stop()
