"""Viewers of the browser's page."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from sandmesh.shared import frames
from sandmesh.shared.frames import FrameBuffer, FrameTooLarge
from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.tools.viewers import BadMessage, Viewers, connect_socket

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
_SHOWN: Final = b"a"
_INPUT: Final = b"i"
_LARGEST: Final = 1 << 20


class ClientMessages:
    """The messages of one viewer, which `sandmeshd.agent.userland.browser.view` describes."""

    def __init__(self, allowed: Callable[[], bool]) -> None:
        self._allowed = allowed
        self._buffer = FrameBuffer(_LARGEST)

    def feed(self, data: bytes) -> bytes:
        """Take bytes and return those that pass.

        Raises:
            BadMessage: They are no messages of a viewer.
        """
        passed = bytearray()
        try:
            for message in self._buffer.feed(data):
                if message[:1] not in (_SHOWN, _INPUT):
                    raise BadMessage("neither input nor a word on an image")
                if message[:1] == _SHOWN or self._allowed():
                    passed += frames.prefix(len(message)) + message
        except FrameTooLarge as error:
            raise BadMessage(str(error)) from None
        return bytes(passed)


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
        messages = ClientMessages(lambda: not readonly and self._viewers.has(viewer))
        return self._viewers.connect(server, messages, None if readonly else viewer)
