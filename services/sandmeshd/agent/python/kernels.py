"""A kernel: its process, its channel and its output."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, cast

from sandmesh.shared import frames
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import RunningCall
from sandmeshd.agent.processes.pipes import OutputPipe, output_pipes
from sandmeshd.agent.processes.spawner import ProcessEnd, ProcessGroup, ProcessSpawner
from sandmeshd.agent.userland.python import kernel_protocol

_KNOWN: Final = frozenset(
    {
        kernel_protocol.BLOCK,
        kernel_protocol.BLOCK_WAITS,
        kernel_protocol.SYNC,
        kernel_protocol.END,
        kernel_protocol.ASK,
        kernel_protocol.FORKED,
    }
)
_READ_BUFFER: Final = 4 << 20
_EXIT_SECONDS: Final = 0.25
"""How long a kernel without a channel may take to exit by itself, so that its own exit status is reported."""

_MOST_DIGITS: Final = 9
_MOST_SAID: Final = 4096
_CONTINUE_SECONDS: Final = 60.0

NOT_FOUND: Final = 127
"""The exit code of a kernel's program that lacks what it runs on."""


class KernelMissing(ToolFailure):
    """A kernel's program lacks what it runs on."""


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


# Made once: json.loads makes one for each call that is strict about NaN.
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _handle_none(_payload: bytes) -> bool:
    return False


class _Channel(asyncio.Protocol):
    """The frames of a kernel. It is not trusted: a malformed frame closes the channel."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.frames: deque[tuple[bytes, bytes]] = deque()
        self.lost = False
        self.undrained = False
        """Whether frames arrived since the output before them was last read."""
        self.handle: Callable[[bytes], bool] = _handle_none
        """Called with a block that both the kernel and a reader wait for; returns whether it handled it."""
        self._arrival: asyncio.Future[None] | None = None
        self._buffer = frames.FrameBuffer(kernel_protocol.MAX_PAYLOAD + 1)
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
                kind, payload = message[:1], message[1:]
                if kind not in _KNOWN or (kind == kernel_protocol.END and not payload):
                    self._abort()
                    return
                if not (kind == kernel_protocol.BLOCK_WAITS and self._awaited and self.handle(payload)):
                    self.frames.append((kind, payload))
                    self._unread += len(payload) + 64
        except frames.FrameTooLarge:
            self._abort()
            return
        if self._unread > _READ_BUFFER and self.transport is not None:
            self.transport.pause_reading()
        if self.frames:
            self.undrained = True
            self.wake()

    @property
    def _awaited(self) -> bool:
        return not self.frames and self._arrival is not None and not self._arrival.done()

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    async def next(self, process: ProcessGroup) -> tuple[bytes, bytes] | None:
        """Wait for a frame and return it; None if the kernel is gone."""
        while not self.frames:
            if self.lost or process.ended.done():
                return None
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        kind, payload = self.frames.popleft()
        before, self._unread = self._unread, self._unread - len(payload) - 64
        if before > _READ_BUFFER >= self._unread and self.transport is not None:
            self.transport.resume_reading()
        return kind, payload

    def wake(self) -> None:
        """Wake who waits for a frame."""
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


class KernelProcess:
    """A kernel's process as the agent sees it."""

    def __init__(self, process: ProcessGroup, channel: _Channel, out: OutputPipe, err: OutputPipe) -> None:
        self.process = process
        self.pid = 0
        self.program = ""
        """The image's own Python that it is of; empty where it is of the template's, or of another language."""
        self.used = False
        """Whether a cell has run in it."""
        self.end_cause = ""
        """What was requested that ended it, and what that means, for the cell that it ran."""
        self.replaced = False
        """Whether another one was started in its place."""
        self._channel = channel
        self._pipes = out, err
        self.stop_timer: asyncio.TimerHandle | None = None
        self.killed = False
        """Whether its process was killed because an interrupt did not end the cell."""
        self._output_poll = select.poll()
        for pipe in self._pipes:
            self._output_poll.register(pipe.reader, select.POLLIN)
        process.ended.add_done_callback(lambda _: channel.wake())

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        """Send a frame, unless the kernel is gone."""
        if self._channel.transport is not None:
            message = kind + payload
            self._channel.transport.write(frames.prefix(len(message)) + message)

    def send_with_descriptor(self, kind: bytes, payload: bytes, fd: int) -> None:
        """Send a frame with a descriptor, unless the kernel is gone."""
        transport = self._channel.transport
        if transport is not None:
            with socket.fromfd(transport.get_extra_info("socket").fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as raw:
                frame = frames.pack(kind + payload)
                sent = socket.send_fds(raw, [frame[:5]], [fd])
            transport.write(frame[sent:])

    async def follow(self, call: RunningCall) -> bytes | None:
        """Write a cell's output to its call, in order. Returns: END's payload, None if the kernel died."""
        out, err = self._pipes
        out.call = err.call = call
        if not (out.watched and err.watched):
            out.watch()
            err.watch()
        channel = self._channel
        channel.handle = partial(self._handle_block, call)
        try:
            while True:
                frame = await channel.next(self.process)
                # Output that was written before the last frame precedes all frames that arrived together.
                if channel.undrained or self.process.ended.done():
                    channel.undrained = False
                    if self._output_poll.poll(0):
                        await out.drain(call)
                        await err.drain(call)
                if frame is None or frame[0] == kernel_protocol.END:
                    return frame[1] if frame else None
                if frame[0] != kernel_protocol.BLOCK:
                    await self._reply(call, *frame)
                elif is_block(frame[1]):
                    # A block that the kernel does not wait for is sent with the next frame.
                    await call.content(frame[1], soon=False)
        finally:
            channel.handle = _handle_none
            out.call = err.call = None

    def _handle_block(self, call: RunningCall, payload: bytes) -> bool:
        """Keep a block that can be kept immediately: the kernel, which waits, continues before the block is parsed."""
        if not call.has_room(len(payload)) or self._output_poll.poll(0):
            return False
        self.send(kernel_protocol.GO_ON)
        if is_block(payload):
            call.keep(payload)
        return True

    async def _reply(self, call: RunningCall, kind: bytes, payload: bytes) -> None:
        """Handle a frame that the kernel waits for."""
        if kind == kernel_protocol.ASK:
            call.request_input(payload)
        elif kind == kernel_protocol.BLOCK_WAITS and is_block(payload):
            await call.content(payload)
        self.send(kernel_protocol.GO_ON)

    def stop(self, timeout: float) -> None:
        """Interrupt the cell; kill the process if the cell has not ended after `timeout` seconds."""
        self.process.signal(signal.SIGINT)
        self.stop_timer = asyncio.get_running_loop().call_later(timeout, self._kill)

    def _kill(self) -> None:
        self.killed = True
        self.process.stop()

    async def ready(self) -> None:
        """Wait until the kernel accepts cells.

        Raises:
            ToolFailure: It does not start; the message is its own.
        """
        frame = await self._channel.next(self.process)
        if frame is None or frame[0] != kernel_protocol.SYNC:
            cause = frame[1][1:].decode("utf-8", "replace") if frame else "its process ended"
            raise ToolFailure(f"The kernel did not start: {cause}.")
        self.send(kernel_protocol.GO_ON)

    async def forked(self) -> int:
        """Wait until this kernel, which another one forked, accepts cells. Returns: what it says is its pid.

        Raises:
            ToolFailure: It ended before, or says something else.
        """
        frame = await self._channel.next(self.process)
        if (
            frame is None
            or frame[0] != kernel_protocol.FORKED
            or not frame[1].isdigit()
            or len(frame[1]) > _MOST_DIGITS
        ):
            raise ToolFailure("The fork ended before it could run cells.")
        return int(frame[1])

    def last_words(self) -> str:
        """Return the last line of what it wrote to its standard error and that was not read; empty for none."""
        try:
            data = os.read(self._pipes[1].reader, _MOST_SAID)
        except OSError:
            return ""
        return data.decode("utf-8", "replace").strip().rpartition("\n")[2]

    async def gone(self) -> ProcessEnd:
        """Wait for the process's end and close its descriptors."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_SECONDS):
                await asyncio.shield(self.process.ended)
        self.process.stop()
        ended = await asyncio.shield(self.process.ended)
        self.close()
        return ended

    def close(self) -> None:
        """Close its descriptors."""
        for pipe in self._pipes:
            pipe.close()
        if self._channel.transport is not None:
            self._channel.transport.abort()


def is_block(payload: bytes) -> bool:
    """Return whether bytes are a content block: one JSON object with a type."""
    try:
        text = payload.decode()
        block, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    whole = end == len(text) and isinstance(block, dict)
    return whole and isinstance(cast("dict[str, object]", block).get("type"), str)


async def open_kernel(processes: ProcessSpawner, cwd: str) -> KernelProcess:
    """Start a Python kernel from the zygote.

    Raises:
        ToolFailure: No process could be started.
    """
    return await _open(lambda fds: processes.fork_kernel(fds, cwd))


async def continue_kernel(
    processes: ProcessSpawner, cwd: str, environment: Mapping[str, str], image: int
) -> KernelProcess:
    """Start a kernel that continues from saved memory.

    Raises:
        ToolFailure: It does not; the message says why.
    """
    kernel = await _open(lambda fds: processes.continue_kernel([*fds, image], cwd, environment))
    try:
        async with asyncio.timeout(_CONTINUE_SECONDS):
            await kernel.forked()
    except (ToolFailure, TimeoutError):
        kernel.process.kill()
        said = kernel.last_words()
        kernel.close()
        raise ToolFailure(said or "The kernel's memory could not be restored.") from None
    except BaseException:
        kernel.process.kill()
        kernel.close()
        raise
    kernel.used = True
    return kernel


async def open_program(
    processes: ProcessSpawner, argv: Sequence[str], env: Mapping[str, str], cwd: str
) -> KernelProcess:
    """Start a kernel that is a separate program, whose first descriptor is its channel.

    Raises:
        ToolFailure: It does not start; the message is its own.
        KernelMissing: What it needs to run is not there.
    """
    kernel = await _open(lambda fds: processes.spawn(argv, fds, cwd=cwd, env=env))
    try:
        await kernel.ready()
    except ToolFailure:
        ended = await kernel.gone()
        if ended.exit_code == NOT_FOUND:
            raise KernelMissing("The kernel's program does not exist.") from None
        if ended.failure:
            raise ToolFailure(ended.failure) from None
        raise
    except BaseException:
        kernel.process.kill()
        kernel.close()
        raise
    return kernel


async def _open(start: Callable[[list[int]], ProcessGroup]) -> KernelProcess:
    kernel = await connect(start)
    try:
        kernel.pid = await kernel.process.started
    except BaseException:
        kernel.process.kill()
        kernel.close()
        raise
    return kernel


async def connect(start: Callable[[list[int]], ProcessGroup]) -> KernelProcess:
    """Open the channel and the pipes of a kernel; `start` is called with its ends of them: socket, output, error.

    Raises:
        OSError: There are no free descriptors; then nothing is left open.
    """
    ours, theirs = socket.socketpair()
    try:
        out, err = output_pipes()
    except OSError:
        ours.close()
        theirs.close()
        raise
    try:
        process = start([theirs.fileno(), out.writer, err.writer])
    except OSError:
        ours.close()
        out.close()
        err.close()
        raise
    finally:
        theirs.close()
        out.close_writer()
        err.close_writer()
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_unix_connection(_Channel, sock=ours)
    return KernelProcess(process, channel, out, err)
