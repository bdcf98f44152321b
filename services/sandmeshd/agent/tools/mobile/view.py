"""Viewers of the device's screen, and what one who has taken over does with it."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.tools.mobile.device import Device
from sandmeshd.agent.tools.viewers import PictureMessages, Viewers
from sandmeshd.agent.userland.core.picture_stream import PictureStream

HELD: Final = (
    "A person has taken over the device: its screen and keys wait for them. mobile_get_screenshot still works. Try "
    "again later."
)
_PAUSE_SECONDS: Final = 0.1
"""Between an image and the next: a device needs a tenth to half a second for one."""
_RETRY_SECONDS: Final = 2.0
_MOST_WAITING: Final = 64
"""A device that does not answer keeps this many inputs at most; what comes then is dropped."""
_LONGEST_TEXT: Final = 10_000
_LONGEST_MILLISECONDS: Final = 10_000
_PNG_SIZE: Final = struct.Struct(">II")
_PNG_SIZE_AT: Final = 16


class DeviceViewers:
    """The viewers of one device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._viewers = Viewers("device", HELD)
        self._stream = PictureStream(_Screen(device, self))
        self._serving: set[asyncio.Task[None]] = set()
        self.act = self._viewers.act

    def services(self) -> Mapping[str, Service]:
        """Return what serves the gateway."""
        return self._viewers.services("mobile.control")

    def show(self, image: bytes) -> None:
        """Send an image to all who watch."""
        self._stream.show(image)

    def describe(self, problem: str) -> None:
        """Send viewers what is wrong; an empty text means nothing is."""
        self._stream.describe({"problem": problem})

    async def dial(self, viewer: str, *, readonly: bool) -> socket.socket:
        """Connect a viewer to the device. Its input passes while it is in control."""
        server, served = socket.socketpair()
        server.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=served)
        task = asyncio.create_task(self._stream.serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        messages = PictureMessages(lambda: not readonly and self._viewers.has(viewer))
        return self._viewers.connect(server, messages, None if readonly else viewer)


class _Screen:
    """The device's screen while somebody watches, and the inputs that wait for it."""

    def __init__(self, device: Device, view: DeviceViewers) -> None:
        self._device = device
        self._view = view
        self._size = (0, 0)
        self._inputs: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST_WAITING)
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Begin to take images."""
        self._tasks = [asyncio.create_task(self._draw()), asyncio.create_task(self._act())]

    def end(self) -> None:
        """Take no more, and forget what was not carried out."""
        for task in self._tasks:
            task.cancel()
        self._inputs = asyncio.Queue(_MOST_WAITING)

    def on_sent(self) -> None:
        """Ignore it: an image is the newest whenever it is sent."""

    def take(self, message: dict[str, Any]) -> None:
        """Queue input behind what came before."""
        with suppress(asyncio.QueueFull):
            self._inputs.put_nowait(message)

    async def _draw(self) -> None:
        last = b""
        while True:
            problem = ""
            try:
                image = await self._device.picture(None)
            except ToolFailure as failure:
                problem = str(failure)
            else:
                self._size = _PNG_SIZE.unpack_from(image, _PNG_SIZE_AT)
                if image != last:
                    self._view.show(image)
                last = image
            self._view.describe(problem)
            await asyncio.sleep(_RETRY_SECONDS if problem else _PAUSE_SECONDS)

    async def _act(self) -> None:
        while True:
            message = await self._inputs.get()
            # Bad input is only its sender's problem; a device that is gone is shown as such.
            with suppress(ToolFailure, ValueError, TypeError, KeyError, AttributeError, OverflowError):
                await self._carry_out(message)

    async def _carry_out(self, message: Mapping[str, Any]) -> None:
        kind = message["t"]
        if kind == "tap":
            await self._device.tap(None, self._point(message["at"]))
        elif kind == "swipe":
            milliseconds = min(max(int(message["ms"]), 1), _LONGEST_MILLISECONDS)
            await self._device.swipe(None, self._point(message["from"]), self._point(message["to"]), milliseconds)
        elif kind == "key":
            await self._device.press(None, str(message["key"]))
        elif kind == "text":
            await self._device.type(None, str(message["text"])[:_LONGEST_TEXT])

    def _point(self, parts: Any) -> tuple[int, int]:
        """Return a point of the screen from the parts of its width and height."""
        x, y = (min(max(float(part), 0.0), 1.0) for part in parts)
        if math.isnan(x) or math.isnan(y):
            raise ValueError(parts)
        width, height = self._size
        return min(int(x * width), width - 1), min(int(y * height), height - 1)
