"""The current page as a stream of JPEGs to a pipe, for as long as it is recorded.

Images come at a steady rate, the last one again where nothing new was drawn, no tab is open, or the browser has died.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from playwright.async_api import Error

from sandmeshd.agent.userland.browser.answer import BrowserAnswer, BrowserFailure
from sandmeshd.agent.userland.browser.screen.follower import QUALITY, TabFollower

if TYPE_CHECKING:
    from sandmeshd.agent.userland.browser.session import BrowserSession

_SECONDS: Final = 5.0
_PIPE_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.02


class Screencast:
    """The stream of one browser."""

    def __init__(self, follower: TabFollower) -> None:
        self._follower = follower
        self._image = b""
        self._streaming: asyncio.Task[None] | None = None

    async def start(self, session: BrowserSession, path: str, fps: int) -> None:
        """Start the browser where it does not run, and stream to a pipe that something reads.

        Raises:
            BrowserFailure: The browser does not start, or nothing reads the pipe.
        """
        await self.stop()
        tab = await session.tab()
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                self._image = await tab.page.screenshot(type="jpeg", quality=QUALITY)
        pipe = os.fdopen(await _opened(path), "wb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, pipe)
        self._streaming = asyncio.create_task(self._stream(transport, 1 / fps))

    async def stop(self) -> None:
        """End the stream."""
        task, self._streaming = self._streaming, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _stream(self, pipe: asyncio.WriteTransport, pause: float) -> None:
        self._follower.add(self)
        try:
            while not pipe.is_closing():
                # Where the reader is slow it has the newest image next, not all that it missed.
                if self._image and not pipe.get_write_buffer_size():
                    pipe.write(self._image)
                await asyncio.sleep(pause)
        finally:
            self._follower.remove(self)
            pipe.abort()

    def on_image(self, data: bytes, _: tuple[float, float]) -> bool:
        """Keep the image as the newest."""
        self._image = data
        return True

    def on_round(self) -> None:
        """Ignore the round: a recording has only the images."""

    def on_leave(self) -> None:
        """Keep the last image until there is another."""


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


async def screencast(session: BrowserSession, arguments: dict[str, Any], _: BrowserAnswer) -> None:
    """Stream to the pipe at a path; without one, end the stream."""
    if arguments["path"]:
        await session.screencast.start(session, arguments["path"], arguments["fps"])
    else:
        await session.screencast.stop()
