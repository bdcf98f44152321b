"""Viewers of the browser's page."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.tools.viewers import PictureMessages, Viewers, connect_socket

SOCKET: Final = "/tmp/.browser/view"  # noqa: S108 - inside a sandbox
HELD: Final = (
    "A person has taken over the browser: its page waits for them. browser_snapshot and browser_take_screenshot still "
    "work. Call browser_wait_for, then try again."
)
HARMLESS: Final = frozenset(
    f"browser_{name}"
    for name in (
        *("snapshot", "take_screenshot", "pdf_save", "wait_for"),
        *("console_messages", "network_requests", "tab_list", "storage_state"),
    )
)
"""The tools that change nothing, which work while a person has the browser."""


class View:
    """The viewers of one browser; `open_view` starts it and has it listen at a socket."""

    def __init__(self, open_view: Callable[[str], Awaitable[None]]) -> None:
        self._open = open_view
        self._viewers = Viewers(HELD)
        self.check = self._viewers.check

    def services(self) -> Mapping[str, Service]:
        """Return what serves the gateway."""
        return self._viewers.services("browser.control")

    async def dial(self, viewer: str, *, readonly: bool) -> socket.socket:
        """Connect a viewer to the browser, started where it does not run. Its input passes while it is in control.

        Raises:
            ToolFailure: The browser does not start.
        """
        await self._open(SOCKET)
        server = await connect_socket(SOCKET)
        messages = PictureMessages(lambda: not readonly and self._viewers.has(viewer))
        return self._viewers.connect(server, messages, None if readonly else viewer)
