"""Images and a state for people who watch, and what they send back.

What goes to them are frames (`sandmesh.shared.frames`) of a letter and a body: `f` an image, `s` the state as JSON.
From them come `a`, which says that an image was shown, and `i`, input as JSON; the agent lets input pass only for
the viewer in control. Nothing is drawn or sent without viewers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from sandmesh.shared import frames

_LARGEST_INPUT: Final = 1 << 20
_MOST_IN_FLIGHT: Final = 2
"""How many images are on their way to a viewer: the next is the newest there is, so a slow viewer skips some."""


class PictureSource(Protocol):
    """What is shown."""

    def begin(self) -> None:
        """Begin to draw: the first viewer came."""

    def end(self) -> None:
        """Draw no more: the last one left."""

    def on_sent(self) -> None:
        """Receive the news that a viewer was sent the newest image."""

    def take(self, message: dict[str, Any]) -> None:
        """Carry out input; what it cannot read is ignored.

        Raises:
            ValueError, TypeError, KeyError: It is not an input.
        """


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


class PictureStream:
    """The viewers of one picture."""

    def __init__(self, watched: PictureSource) -> None:
        self._watched = watched
        self._viewers: set[_Viewer] = set()
        self._image = b""
        self._number = 0
        self._state = ""

    def show(self, image: bytes) -> None:
        """Send an image to all; empty: there is none now."""
        self._image = image
        self._number += 1
        self._tell()

    def describe(self, state: Mapping[str, Any]) -> None:
        """Send the state to all who were not sent the same."""
        self._state = json.dumps(state)
        self._tell()

    def _tell(self) -> None:
        for viewer in self._viewers:
            viewer.changed.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a viewer until it leaves."""
        viewer = _Viewer(writer)
        if not self._viewers:
            self._watched.begin()
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
                self._watched.end()
                self._image = b""

    def _take(self, viewer: _Viewer, message: bytes) -> None:
        if message[:1] == b"a":
            viewer.in_flight = max(0, viewer.in_flight - 1)
            viewer.changed.set()
            return
        # Bad input is only its sender's problem, and there is none of it from the page.
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._watched.take(json.loads(message[1:]))

    async def _send(self, viewer: _Viewer) -> None:
        with suppress(ConnectionError):
            while True:
                await viewer.changed.wait()
                viewer.changed.clear()
                if self._state and viewer.state != self._state:
                    viewer.state = self._state
                    viewer.send(b"s", self._state.encode())
                if self._image and viewer.image != self._number and viewer.in_flight < _MOST_IN_FLIGHT:
                    viewer.image = self._number
                    viewer.in_flight += 1
                    viewer.send(b"f", self._image)
                    self._watched.on_sent()
                await viewer.writer.drain()
