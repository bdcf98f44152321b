"""What people see of the browser's current tab, and what they do to it.

They connect to a unix socket. What goes to them are frames (`sandmesh.shared.frames`) of a letter and a body: `f` an
image of the page, `s` its state as JSON. From them come `a`, which says that an image was shown, and `i`, input as
JSON; the agent lets input pass only for whoever has control. Nothing is drawn or sent while nobody watches.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandmesh.shared import frames
from sandmeshd.agent.userland.browser.answer import Answer
from sandmeshd.agent.userland.browser.session import BrowserSession
from sandmeshd.agent.userland.browser.view_input import Input

_LARGEST_INPUT: Final = 1 << 20
_MOST_IN_FLIGHT: Final = 2
"""How many images are on their way to a viewer: the next is the newest there is, so a slow viewer skips some."""


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
    """The newest image, and how many there were."""

    data: bytes = b""
    number: int = 0


class View:
    """The view of one browser, which follows its current tab."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._server: asyncio.Server | None = None
        self._viewers: set[_Viewer] = set()
        self._follower = session.follower
        self._picture = _Picture()
        self._state = ""
        self._input = Input(session)

    async def open(self, session: BrowserSession, arguments: dict[str, Any], _: Answer) -> None:
        """Start the browser where it does not run, and listen for viewers."""
        if session.current is None:
            await session.tab()
        if self._server is None:
            self._server = await asyncio.start_unix_server(self._serve, _free(Path(arguments["path"])))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        viewer = _Viewer(writer)
        if not self._viewers:
            self._follower.add(self)
        self._viewers.add(viewer)
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
            if not self._viewers:
                self._follower.remove(self)
                self.on_leave()

    def _take(self, viewer: _Viewer, message: bytes) -> None:
        if message[:1] == b"a":
            viewer.in_flight = max(0, viewer.in_flight - 1)
            viewer.changed.set()
        elif self._follower.tab is not None:
            # Bad input is nobody's but its sender's, and there is none of it from the page.
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                self._input.take(self._follower.tab, self._follower.cdp, json.loads(message[1:]))

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
                    self._follower.acknowledge()
                await viewer.writer.drain()

    def _tell(self) -> None:
        for viewer in self._viewers:
            viewer.changed.set()

    def on_image(self, data: bytes, size: tuple[float, float]) -> bool:
        """Show an image; the next may come once a viewer was sent this one."""
        self._picture.data = data
        self._input.size = size
        self._picture.number += 1
        self._tell()
        return False

    def on_leave(self) -> None:
        """Forget the image: it is of another tab."""
        self._picture.data = b""

    def on_round(self) -> None:
        """Describe the tab and what is known of it to the viewers."""
        tab = self._follower.tab
        dialog = tab.dialog if tab is not None else None
        state = {
            "url": tab.page.url if tab is not None else "",
            "tabs": [each.page.url for each in self._session.tabs],
            "tab": self._session.tabs.index(tab) if tab in self._session.tabs else -1,
            "dialog": {"type": dialog.type, "message": dialog.message} if dialog is not None else None,
        }
        self._state = json.dumps(state)
        self._tell()


def _free(path: Path) -> Path:
    """Return the path of a socket that is free, in a directory that is there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path
