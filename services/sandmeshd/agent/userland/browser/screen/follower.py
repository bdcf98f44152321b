"""Images of the current tab for those who listen: the view that people see, and the recording.

There is one connection to the page for all of them, and none without listeners. The browser draws the next image
once one of them is done with the last.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from playwright.async_api import Error

if TYPE_CHECKING:
    from sandmeshd.agent.userland.browser.session import BrowserSession
    from sandmeshd.agent.userland.browser.tab import Tab

QUALITY: Final = 75
_CAST: Final = {"format": "jpeg", "quality": QUALITY, "everyNthFrame": 1}
_FOLLOW_SECONDS: Final = 0.1
_START_SECONDS: Final = 5.0
_QUIET_ROUNDS: Final = 3
"""After so many rounds without an image one is taken: the browser may have left out the last of several."""


class DevTools(Protocol):
    """A connection to a page over the browser's DevTools protocol."""

    async def send(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a command and return its result."""

    def on(self, event: str, f: Callable[[dict[str, Any]], None], /) -> Any:
        """Call a function with each event of a kind."""

    async def detach(self) -> None:
        """End the connection."""


class Listener(Protocol):
    """Receives the images of whatever tab is the current one."""

    def on_image(self, data: bytes, size: tuple[float, float], /) -> bool:
        """Receive an image and the size of the page; return whether the browser may draw the next one."""
        ...

    def on_round(self) -> None:
        """Look at what else may have changed: called several times a second."""

    def on_leave(self) -> None:
        """Receive the news that the tab is not the current one any more."""


@dataclass
class _Cast:
    """The images of one tab."""

    cdp: DevTools | None = None
    newest: str = ""
    unacknowledged: list[int] = field(default_factory=list[int])
    seen: bool = False
    quiet: int = 0


class TabFollower:
    """Follows the current tab of one browser."""

    def __init__(self, session: BrowserSession) -> None:
        self.tab: Tab | None = None
        self._session = session
        self._listeners: list[Listener] = []
        self._cast = _Cast()
        self._following: asyncio.Task[None] | None = None
        self._drawing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def cdp(self) -> DevTools | None:
        """The connection to the tab."""
        return self._cast.cdp

    def add(self, listener: Listener) -> None:
        """Send images to a listener, the first of which is the page as it is."""
        self.remove(listener)
        self._stop()
        self._listeners.append(listener)
        self._following = asyncio.create_task(self._follow())

    def remove(self, listener: Listener) -> None:
        """Send a listener nothing more."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            if not self._listeners:
                self._stop()

    def _stop(self) -> None:
        task, self._following = self._following, None
        if task is not None:
            task.cancel()
            self.tab = None
            self._spawn(self._leave())

    async def _follow(self) -> None:
        while True:
            if self._session.current is not self.tab:
                await self._leave()
                self.tab = self._session.current
                await self._show()
            for listener in self._listeners:
                listener.on_round()
            self._cast.quiet += 1
            missing = not self._cast.seen and self._cast.quiet % _QUIET_ROUNDS == 0
            if (self._cast.quiet == _QUIET_ROUNDS or missing) and (self._drawing is None or self._drawing.done()):
                self._drawing = self._spawn(self._draw(self._cast))
            await asyncio.sleep(_FOLLOW_SECONDS)

    async def _show(self) -> None:
        tab, shown = self.tab, self._cast
        if tab is None:
            return
        try:
            async with asyncio.timeout(_START_SECONDS):
                shown.cdp = cast("DevTools", await tab.page.context.new_cdp_session(tab.page))
                shown.cdp.on("Page.screencastFrame", partial(self._on_image, shown))
                await shown.cdp.send("Page.startScreencast", dict(_CAST))
                if tab.dialog is None:
                    # Pages behind draw nothing.
                    await tab.page.bring_to_front()
        except (Error, TimeoutError):
            # The next round tries again, unless another tab is the current one by then.
            self.tab = None

    async def _leave(self) -> None:
        left, self._cast = self._cast, _Cast()
        for listener in self._listeners:
            listener.on_leave()
        if left.cdp is not None:
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    await left.cdp.send("Page.stopScreencast")
                    await left.cdp.detach()

    async def _draw(self, shown: _Cast) -> None:
        """Take an image of the page as it is now."""
        cdp = shown.cdp
        if cdp is None:
            return
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                image = await cdp.send("Page.captureScreenshot", {"format": "jpeg", "quality": QUALITY})
                size = (await cdp.send("Page.getLayoutMetrics"))["cssLayoutViewport"]
                self._send(shown, image["data"], (size["clientWidth"], size["clientHeight"]))

    def _on_image(self, shown: _Cast, event: dict[str, Any]) -> None:
        if shown is not self._cast:
            return
        shown.unacknowledged.append(event["sessionId"])
        if event["data"] == shown.newest:
            self.acknowledge()
            return
        shown.newest, shown.quiet = event["data"], 0
        metadata = event["metadata"]
        self._send(shown, event["data"], (metadata["deviceWidth"], metadata["deviceHeight"]))

    def _send(self, shown: _Cast, image: str, size: tuple[float, float]) -> None:
        if shown is not self._cast:
            return
        shown.seen = True
        data = base64.b64decode(image)
        ready = [listener.on_image(data, size) for listener in self._listeners]
        # The quickest of them sets the pace.
        if any(ready):
            self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge the images so far: the browser then draws the next."""
        for number in self._cast.unacknowledged:
            if self._cast.cdp is not None:
                self._spawn(_acknowledged(self._cast.cdp, number))
        self._cast.unacknowledged.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _acknowledged(cdp: DevTools, number: int) -> None:
    with suppress(Error):
        await cdp.send("Page.screencastFrameAck", {"sessionId": number})
