"""What people see of the browser's current tab, and what they do to it.

They connect to a unix socket. What goes to them are frames (`sandmesh.shared.frames`) of a letter and a body: `f` an
image of the page, `s` its state as JSON. From them come `a`, which says that an image was shown, and `i`, input as
JSON; the agent lets input pass only for whoever has control. Nothing is drawn or sent while nobody watches.
"""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from playwright.async_api import Error

from sandmesh.shared import frames
from sandmeshd.agent.userland.browser.answer import Answer
from sandmeshd.agent.userland.browser.session import BrowserSession
from sandmeshd.agent.userland.browser.tab import Tab
from sandmeshd.agent.userland.browser.view_input import DevTools, Input

_CAST: Final = {"format": "jpeg", "quality": 75, "everyNthFrame": 1}
_LARGEST_INPUT: Final = 1 << 20
_MOST_IN_FLIGHT: Final = 2
"""How many images are on their way to a viewer: the next is the newest there is, so a slow viewer skips some."""
_FOLLOW_SECONDS: Final = 0.1
_START_SECONDS: Final = 5.0
_QUIET_ROUNDS: Final = 3
"""After so many rounds without an image one is taken: the browser may have left out the last of several."""


class _Viewer:
    """A connection, and what it has seen."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.changed = asyncio.Event()
        self.image = 0
        self.state = ""
        self.in_flight = 0

    def send(self, kind: bytes, body: bytes) -> None:
        """Send a frame."""
        self.writer.write(frames.prefix(len(body) + 1) + kind + body)


@dataclass
class _Picture:
    """The newest image, how many there were, and the last that the browser sent by itself."""

    data: bytes = b""
    number: int = 0
    cast: str = ""


class View:
    """The view of one browser, which follows its current tab."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._server: asyncio.Server | None = None
        self._viewers: set[_Viewer] = set()
        self._following: asyncio.Task[None] | None = None
        self._tab: Tab | None = None
        self._cdp: DevTools | None = None
        self._picture = _Picture()
        self._unacknowledged: list[int] = []
        self._state = ""
        self._quiet = 0
        self._input = Input(session)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, session: BrowserSession, arguments: dict[str, Any], _: Answer) -> None:
        """Start the browser where it does not run, and listen for viewers."""
        if session.current is None:
            await session.tab()
        if self._server is None:
            self._server = await asyncio.start_unix_server(self._serve, _free(Path(arguments["path"])))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        viewer = _Viewer(writer)
        self._viewers.add(viewer)
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow())
        sending = asyncio.create_task(self._send(viewer))
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if not 0 < size <= _LARGEST_INPUT:
                    return
                self._take(viewer, await reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            sending.cancel()
            writer.close()
            self._viewers.discard(viewer)
            self._rest()

    def _rest(self) -> None:
        """Stop following where nobody watches any more."""
        if not self._viewers and self._following is not None:
            self._following.cancel()
            self._following = None

    def _take(self, viewer: _Viewer, message: bytes) -> None:
        if message[:1] == b"a":
            viewer.in_flight = max(0, viewer.in_flight - 1)
            viewer.changed.set()
        elif self._tab is not None:
            # Bad input is nobody's but its sender's, and there is none of it from the page.
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                self._input.take(self._tab, self._cdp, json.loads(message[1:]))

    async def _send(self, viewer: _Viewer) -> None:
        with suppress(ConnectionError):
            while True:
                await viewer.changed.wait()
                viewer.changed.clear()
                if self._state and viewer.state != self._state:
                    viewer.state = self._state
                    viewer.send(b"s", self._state.encode())
                if self._picture.data and viewer.image != self._picture.number and viewer.in_flight < _MOST_IN_FLIGHT:
                    viewer.image = self._picture.number
                    viewer.in_flight += 1
                    viewer.send(b"f", self._picture.data)
                    self._acknowledge()
                await viewer.writer.drain()

    def _tell(self) -> None:
        for viewer in self._viewers:
            viewer.changed.set()

    async def _follow(self) -> None:
        """Show the current tab, and what is known of it, while somebody watches."""
        try:
            while True:
                if self._session.current is not self._tab:
                    await self._leave()
                    self._tab, self._quiet = self._session.current, 0
                    await self._show()
                self._describe()
                self._quiet += 1
                if self._quiet == _QUIET_ROUNDS or (not self._picture.data and self._quiet % _QUIET_ROUNDS == 0):
                    await self._draw()
                await asyncio.sleep(_FOLLOW_SECONDS)
        finally:
            self._tab = None
            self._spawn(self._leave())

    async def _show(self) -> None:
        tab = self._tab
        if tab is None:
            return
        try:
            async with asyncio.timeout(_START_SECONDS):
                session = await tab.page.context.new_cdp_session(tab.page)
                session.on("Page.screencastFrame", self._on_image)
                cdp = self._cdp = cast("DevTools", session)
                await cdp.send("Page.startScreencast", dict(_CAST))
                if tab.dialog is None:
                    # Pages behind draw nothing.
                    await tab.page.bring_to_front()
        except (Error, TimeoutError):
            # The next round tries again, unless another tab is the current one by then.
            self._tab = None

    async def _draw(self) -> None:
        """Take an image of the page as it is now."""
        cdp = self._cdp
        if cdp is None:
            return
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                seen = await cdp.send("Page.captureScreenshot", {"format": "jpeg", "quality": 75})
                size = (await cdp.send("Page.getLayoutMetrics"))["cssLayoutViewport"]
                if cdp is self._cdp:
                    self._set_image(seen["data"], size["clientWidth"], size["clientHeight"])

    async def _leave(self) -> None:
        cdp, self._cdp = self._cdp, None
        self._picture.data, self._picture.cast = b"", ""
        self._unacknowledged.clear()
        if cdp is not None:
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    await cdp.send("Page.stopScreencast")
                    await cdp.detach()

    def _on_image(self, event: dict[str, Any]) -> None:
        self._unacknowledged.append(event["sessionId"])
        if event["data"] == self._picture.cast:
            self._acknowledge()
            return
        self._picture.cast, self._quiet = event["data"], 0
        self._set_image(event["data"], event["metadata"]["deviceWidth"], event["metadata"]["deviceHeight"])

    def _set_image(self, data: str, width: float, height: float) -> None:
        self._picture.data = base64.b64decode(data)
        self._input.size = (width, height)
        self._picture.number += 1
        self._tell()

    def _acknowledge(self) -> None:
        """Acknowledge the images so far, once a viewer was sent the last: the browser then draws the next."""
        for number in self._unacknowledged:
            if self._cdp is not None:
                self._spawn(_ignored(self._cdp, "Page.screencastFrameAck", {"sessionId": number}))
        self._unacknowledged.clear()

    def _describe(self) -> None:
        tab = self._tab
        dialog = tab.dialog if tab is not None else None
        state = {
            "url": tab.page.url if tab is not None else "",
            "tabs": [each.page.url for each in self._session.tabs],
            "tab": self._session.tabs.index(tab) if tab in self._session.tabs else -1,
            "dialog": {"type": dialog.type, "message": dialog.message} if dialog is not None else None,
        }
        self._state = json.dumps(state)
        self._tell()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _free(path: Path) -> Path:
    """Return the path of a socket that is free, in a directory that is there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


async def _ignored(cdp: DevTools, method: str, parameters: dict[str, Any]) -> None:
    with suppress(Error):
        await cdp.send(method, parameters)
