"""The default Python kernel: its process, its channel, and cells that take turns."""

from __future__ import annotations

import asyncio
import json
import select
import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, cast

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.shared.frames import FrameBuffer, FrameTooLarge
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Call
from sandmeshd.agent.processes.pipes import OutputPipe
from sandmeshd.agent.processes.spawner import Ended, Process, Processes
from sandmeshd.agent.userland import kernel_protocol

_WAITING: Final = frozenset({kernel_protocol.BLOCK_WAITS, kernel_protocol.SYNC, kernel_protocol.ASK})
_KNOWN: Final = frozenset(
    {kernel_protocol.BLOCK, kernel_protocol.BLOCK_WAITS, kernel_protocol.SYNC, kernel_protocol.END, kernel_protocol.ASK}
)
_INSIDE: Final = str(Path(__file__).parents[1] / "userland" / "__main__.py")
_MOST_UNREAD: Final = 4 << 20
_OWN_END_SECONDS: Final = 0.25
"""How long a kernel without a channel may take to end by itself: how it does is then told, not that it was killed."""


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


# Made once: json.loads makes one for each call that is strict about NaN.
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _take_nothing(_kind: int, _payload: bytes) -> bool:
    return False


class _Channel(asyncio.Protocol):
    """The frames of a kernel. What it sends is not to be trusted: one that breaks the form is cut off."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.frames: deque[tuple[int, bytes]] = deque()
        self.lost = False
        self.undrained = False
        """Whether something came since the output before it was last looked for."""
        self.news: asyncio.Future[None] | None = None
        self.take: Callable[[int, bytes], bool] = _take_nothing
        """Asked for a frame that is waited for and has none before it: whether it was acted on at once."""
        self._buffer = FrameBuffer(kernel_protocol.MAX_PAYLOAD + 1)
        self._unread = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = self.undrained = True
        self.transport = None
        self.wake()

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._buffer.feed(data):
                self._receive(message)
        except (FrameTooLarge, ValueError):
            self._cut_off()
            return
        if self._unread > _MOST_UNREAD and self.transport is not None:
            self.transport.pause_reading()
        if self.frames:
            self.undrained = True
            self.wake()

    def _receive(self, message: bytes) -> None:
        kind, payload = (message[0], message[1:]) if message else (0, b"")
        if kind not in _KNOWN:
            raise ValueError(f"a kernel sends nothing of kind {kind}")
        if not (self._awaited and self.take(kind, payload)):
            self.frames.append((kind, payload))
            self._unread += len(message) + 64

    @property
    def _awaited(self) -> bool:
        return not self.frames and self.news is not None and not self.news.done()

    def next(self) -> tuple[int, bytes]:
        """Take the oldest frame."""
        kind, payload = self.frames.popleft()
        before, self._unread = self._unread, self._unread - len(payload) - 64
        if before > _MOST_UNREAD >= self._unread and self.transport is not None:
            self.transport.resume_reading()
        return kind, payload

    def wake(self) -> None:
        """Tell who waits that something came."""
        if self.news is not None and not self.news.done():
            self.news.set_result(None)

    def _cut_off(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Kernel:
    """A kernel's process as the agent sees it."""

    def __init__(self, process: Process, channel: _Channel, out: OutputPipe, err: OutputPipe) -> None:
        self.process = process
        self.pid = 0
        self.used = False
        """Whether a cell has run in it."""
        self.buried = False
        """Whether another one was made in its place."""
        self._channel = channel
        self._pipes = out, err
        self._written = select.poll()
        for pipe in self._pipes:
            self._written.register(pipe.reader, select.POLLIN)
        process.ended.add_done_callback(lambda _: channel.wake())

    def send(self, kind: int, payload: bytes = b"") -> None:
        """Send a frame; a kernel that is gone takes none."""
        if self._channel.transport is not None:
            self._channel.transport.write(kernel_protocol.pack(kind, payload))

    def send_with_input(self, payload: bytes, fd: int) -> None:
        """Send a cell with the descriptor of its standard input."""
        transport = self._channel.transport
        if transport is not None:
            with socket.fromfd(transport.get_extra_info("socket").fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as raw:
                frame = kernel_protocol.pack(kernel_protocol.RUN_WITH_INPUT, payload)
                sent = socket.send_fds(raw, [frame[:5]], [fd])
            transport.write(frame[sent:])

    async def follow(self, call: Call) -> bytes | None:
        """Give a cell's output, in its order, to its call. Returns: END's payload, None if the kernel died."""
        for pipe in self._pipes:
            pipe.give_to(call)
        self._channel.take = partial(self._take, call)
        try:
            while True:
                frame = await self._frame()
                await self._drain(call)
                if frame is None or frame[0] == kernel_protocol.END:
                    return frame[1] if frame else None
                await self._place(call, *frame)
        finally:
            self._channel.take = _take_nothing
            for pipe in self._pipes:
                pipe.give_to(None)

    def _take(self, call: Call, kind: int, payload: bytes) -> bool:
        """Keep a block that nothing has to be waited for: the kernel, which waits, goes on before it is looked at."""
        if kind != kernel_protocol.BLOCK_WAITS or not call.has_room(len(payload)) or self._written.poll(0):
            return False
        self.send(kernel_protocol.GO_ON)
        if is_block(payload):
            call.keep(payload)
        return True

    async def _drain(self, call: Call) -> None:
        """Read the output that was written before what came last. Frames that came together have it before them all."""
        if not (self._channel.undrained or self.process.ended.done()):
            return
        self._channel.undrained = False
        if self._written.poll(0):
            for pipe in self._pipes:
                await pipe.drain(call)

    async def _place(self, call: Call, kind: int, payload: bytes) -> None:
        if kind == kernel_protocol.ASK:
            call.ask_input(payload)
        elif kind != kernel_protocol.SYNC and is_block(payload):
            # What does not wait leaves with the frame that follows.
            await call.content(payload, soon=kind in _WAITING)
        if kind in _WAITING:
            self.send(kernel_protocol.GO_ON)

    async def _frame(self) -> tuple[int, bytes] | None:
        channel = self._channel
        while not channel.frames:
            if channel.lost or self.process.ended.done():
                return None
            channel.news = asyncio.get_running_loop().create_future()
            await channel.news
        return channel.next()

    async def greet(self) -> None:
        """Wait until the kernel takes cells.

        Raises:
            ToolFailure: It does not; the message is its own.
        """
        frame = await self._frame()
        if frame is None or frame[0] != kernel_protocol.SYNC:
            said = frame[1][1:].decode("utf-8", "replace") if frame else "its process ended"
            raise ToolFailure(f"The kernel did not start: {said}.")
        self.send(kernel_protocol.GO_ON)

    async def gone(self) -> Ended:
        """Wait for the process's end, and let go of all that it had."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_OWN_END_SECONDS):
                await asyncio.shield(self.process.ended)
        self.process.kill()
        ended = await asyncio.shield(self.process.ended)
        self.close()
        return ended

    def close(self) -> None:
        """Let go of its descriptors."""
        for pipe in self._pipes:
            pipe.close()
        if self._channel.transport is not None:
            self._channel.transport.abort()


def is_block(payload: bytes) -> bool:
    """Say whether bytes are a content block: one JSON object with a type."""
    try:
        text = payload.decode()
        block, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    whole = end == len(text) and isinstance(block, dict)
    return whole and isinstance(cast("dict[str, object]", block).get("type"), str)


async def open_kernel(processes: Processes, cwd: str) -> Kernel:
    """Have the zygote fork a Python kernel.

    Raises:
        ToolFailure: No process could be made.
    """
    return await _open(lambda fds: processes.fork_kernel(fds, cwd))


async def open_jupyter(
    processes: Processes, python: str, environment: Mapping[str, str], name: str, cwd: str
) -> Kernel:
    """Start a Jupyter kernel that the template, or what was installed in the sandbox, has.

    Raises:
        ToolFailure: There is none of that name, or it does not start.
    """
    # Found by PATH, where the layer that a user's pip installs to comes before the template's own.
    argv = [Path(python).name, "-P", _INSIDE, "jupyter", "0"]
    env = {**environment, "SANDMESH_KERNEL": name}
    kernel = await _open(lambda fds: processes.spawn(argv, fds, cwd=cwd, env=env))
    try:
        await kernel.greet()
    except BaseException:
        kernel.process.kill()
        kernel.close()
        raise
    return kernel


async def _open(start: Callable[[list[int]], Process]) -> Kernel:
    ours, theirs = socket.socketpair()
    out, err = OutputPipe(pb.STREAM_STDOUT), OutputPipe(pb.STREAM_STDERR)
    with theirs:
        process = start([theirs.fileno(), out.writer, err.writer])
    out.close_writer()
    err.close_writer()
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_unix_connection(_Channel, sock=ours)
    kernel = Kernel(process, channel, out, err)
    try:
        kernel.pid = await process.started
    except BaseException:
        kernel.close()
        raise
    return kernel
