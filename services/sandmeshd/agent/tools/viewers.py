"""People who watch what the agent does, and who has the mouse and the keyboard: the agent, or one of them."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeVar

from sandmesh.shared import frames
from sandmesh.shared.frames import FrameBuffer, FrameTooLarge
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.files.arguments import Arguments, read_arguments

R = TypeVar("R")
_CHUNK: Final = 256 << 10
_SHOWN: Final = b"a"
_INPUT: Final = b"i"
_LARGEST: Final = 1 << 20
_ACTING_SECONDS: Final = 2.0
"""For how long after an action's end viewers are told that the agent acts."""
_TAKE_SECONDS: Final = 5.0
"""How long a person who takes over waits for the agent's last step."""
_INTERRUPTED: Final = (
    "A person took over the {} during this call, which was ended there: what it had done before stays, the rest was "
    "not done. Look at the {} again once they hand back."
)


class BadMessage(Exception):
    """A viewer sent what no viewer sends."""


class ViewerMessages(Protocol):
    """Lets pass what a viewer may send."""

    def feed(self, data: bytes) -> bytes:
        """Take bytes and return those that pass.

        Raises:
            BadMessage: They are no messages of a viewer.
        """
        ...


class PictureMessages:
    """The messages of one viewer, which `sandmeshd.agent.userland.core.picture_stream` describes."""

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


@dataclass(frozen=True)
class ControlView(Arguments):
    """Takes over for a viewer, hands back, or (for another action) only says who has it."""

    tool: ClassVar[str] = "view.control"
    viewer: str
    action: str = "show"


async def _nothing() -> None:
    """Wait for nothing: a cancelled action has ended."""


class Viewers:
    """The viewers of one screen or browser, which is `watched`.

    `held` is what the agent's calls are told while one of them has it. `settled` waits until what cancelled actions
    had begun has ended.
    """

    def __init__(self, watched: str, held: str, settled: Callable[[], Awaitable[None]] = _nothing) -> None:
        self._held = held
        self._interrupted = _INTERRUPTED.format(watched, watched)
        self._settled = settled
        self._viewers: Counter[str] = Counter()
        self._holder: str | None = None
        self._acted = -math.inf
        self._actions: set[asyncio.Task[Any]] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def act(self, action: Coroutine[Any, Any, R]) -> R:
        """Carry out an action of the agent, which is cancelled when a person takes over.

        Raises:
            ToolFailure: A person has control, or took it before the action's end.
        """
        if self._holder is not None:
            action.close()
            raise ToolFailure(self._held)
        task = asyncio.ensure_future(action)
        self._actions.add(task)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._actions.discard(task)
            self._acted = time.monotonic()
        if task.cancelled():
            raise ToolFailure(self._interrupted)
        return task.result()

    async def _interrupt(self) -> None:
        """Cancel what the agent does, and wait for the ends of its last steps."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TAKE_SECONDS):
                for task in self._actions:
                    task.cancel()
                if self._actions:
                    await asyncio.wait(self._actions)
                await self._settled()

    def has(self, viewer: str) -> bool:
        """Return whether a viewer has control."""
        return self._holder == viewer

    def services(self, tool: str) -> Mapping[str, Service]:
        """Return what serves the gateway, under a name."""
        return {tool: Service(partial(read_arguments, ControlView), self._control)}

    async def _control(self, request: ControlView, call: RunningCall) -> Outcome:
        call.started()
        connected = self._viewers[request.viewer] > 0
        if request.action == "take" and connected:
            self._holder = request.viewer
            await self._interrupt()
        elif request.action == "hand_back" and self._holder == request.viewer:
            self._holder = None
        holder = "agent" if self._holder is None else "you" if self._holder == request.viewer else "another person"
        acting = bool(self._actions) or time.monotonic() - self._acted < _ACTING_SECONDS
        state = {"holder": holder, "acting": acting}
        return Outcome(structured=json.dumps(state).encode())

    def connect(self, server: socket.socket, messages: ViewerMessages, viewer: str | None) -> socket.socket:
        """Connect a viewer to a server and return their end; None is one who never takes over."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        if viewer is not None:
            self._viewers[viewer] += 1
        pump = asyncio.create_task(self._carry(ours, server, messages, viewer))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        return theirs

    async def _carry(
        self, person: socket.socket, server: socket.socket, messages: ViewerMessages, viewer: str | None
    ) -> None:
        """Carry bytes both ways until one side ends; with its last connection a viewer hands back."""
        ways = [
            asyncio.create_task(_to_server(person, server, messages)),
            asyncio.create_task(_to_person(server, person)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            person.close()
            server.close()
            if viewer is not None:
                self._leave(viewer)

    def _leave(self, viewer: str) -> None:
        self._viewers[viewer] -= 1
        if not self._viewers[viewer]:
            del self._viewers[viewer]
            if self._holder == viewer:
                self._holder = None


async def _to_server(person: socket.socket, server: socket.socket, messages: ViewerMessages) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError, BadMessage):
        while data := await loop.sock_recv(person, _CHUNK):
            await loop.sock_sendall(server, messages.feed(data))


async def _to_person(server: socket.socket, person: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await loop.sock_recv(server, _CHUNK):
            await loop.sock_sendall(person, data)


async def connect_socket(path: str) -> socket.socket:
    """Connect to a socket of the sandbox. User code can put a link in its place, which is not followed.

    Raises:
        OSError: Nothing listens there.
        ToolFailure: It is not a socket.
    """
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(place).st_mode):
            raise ToolFailure(f"{path} is not the socket that it was.")
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await asyncio.get_running_loop().sock_connect(server, f"/proc/self/fd/{place}")
        except BaseException:
            server.close()
            raise
    finally:
        os.close(place)
    return server
