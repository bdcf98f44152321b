"""What people see of the browser's current tab, and what they do to it; they connect to a unix socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from playwright.async_api import Dialog

from sandmeshd.agent.userland.browser.answer import BrowserAnswer
from sandmeshd.agent.userland.browser.screen.view_input import ViewInput
from sandmeshd.agent.userland.browser.session import BrowserSession
from sandmeshd.agent.userland.core.picture_stream import PictureStream


class BrowserView:
    """The view of one browser, which follows its current tab."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._server: asyncio.Server | None = None
        self._follower = session.follower
        self._input = ViewInput(session)
        self._stream = PictureStream(self)

    async def open(self, session: BrowserSession, arguments: dict[str, Any], _: BrowserAnswer) -> None:
        """Start the browser where it does not run, and listen for viewers."""
        if session.current is None:
            await session.tab()
        if self._server is None:
            self._server = await asyncio.start_unix_server(self._stream.serve, _free(Path(arguments["path"])))

    def begin(self) -> None:
        """Begin to draw."""
        self._follower.add(self)

    def end(self) -> None:
        """Draw no more."""
        self._follower.remove(self)

    def on_sent(self) -> None:
        """Acknowledge the image, so that the next is drawn."""
        self._follower.acknowledge()

    def take(self, message: dict[str, Any]) -> None:
        """Carry out input on the tab that is shown."""
        if self._follower.tab is not None:
            self._input.take(self._follower.tab, self._follower.cdp, message)

    def on_image(self, data: bytes, size: tuple[float, float]) -> bool:
        """Show an image; the next may come once a viewer was sent this one."""
        self._input.size = size
        self._stream.show(data)
        return False

    def on_leave(self) -> None:
        """Forget the image: it is of another tab."""
        self._stream.show(b"")

    def on_round(self) -> None:
        """Describe the tab and what is known of it to the viewers."""
        tab = self._follower.tab
        state = {
            "url": tab.page.url if tab is not None else "",
            "tabs": [each.page.url for each in self._session.tabs],
            "tab": self._session.tabs.index(tab) if tab in self._session.tabs else -1,
            "dialog": describe_dialog(tab.dialog, tab.dialog_number) if tab is not None else None,
        }
        self._stream.describe(state)


def describe_dialog(dialog: Dialog | None, number: int) -> dict[str, Any] | None:
    """Return what viewers are told of a dialog; `number` tells it from all others."""
    if dialog is None:
        return None
    return {"type": dialog.type, "message": dialog.message, "default": dialog.default_value, "number": number}


def _free(path: Path) -> Path:
    """Return the path of a socket that is free, in a directory that is there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path
