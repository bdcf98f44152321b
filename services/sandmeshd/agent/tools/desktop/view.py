"""Viewers of the desktop."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.tools.desktop.parts import RFB_SOCKET, Parts
from sandmeshd.agent.tools.desktop.rfb import ClientMessages
from sandmeshd.agent.tools.viewers import Viewers, connect_socket

HELD: Final = (
    "A person has taken over the desktop: its mouse, keyboard and windows wait for them. Screenshots still work. Call "
    "the action wait, then try again."
)


class View:
    """The viewers of one desktop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._viewers = Viewers(HELD)
        self.check = self._viewers.check

    def services(self) -> Mapping[str, Service]:
        """Return what serves the gateway."""
        return self._viewers.services("desktop.control")

    async def dial(self, viewer: str, *, readonly: bool) -> socket.socket:
        """Connect a viewer to the desktop, started where it does not run. Its input passes while it is in control.

        Raises:
            ToolFailure: The desktop does not start.
        """
        await self._parts.ready()
        server = await connect_socket(RFB_SOCKET)
        messages = ClientMessages(lambda: not readonly and self._viewers.has(viewer))
        return self._viewers.connect(server, messages, None if readonly else viewer)
