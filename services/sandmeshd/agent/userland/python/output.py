"""A kernel's standard streams and its channel to the agent, kept in one order.

What is printed goes through the pipes at descriptors 1 and 2, as what subprocesses write does. Before the kernel
changes from one of stdout, stderr and blocks to another, it waits until the agent has read what came before.
"""

from __future__ import annotations

import io
import json
import os
import select
import socket
import sys
from _thread import RLock
from collections import deque
from collections.abc import Iterable

from sandmesh.shared import frames
from sandmeshd.agent.userland.python import content_blocks, kernel_protocol

INPUT_HINT = "Put the values into the code, or answer with `on_input` of the SDK's `run` and `run_ipython_cell`."
"""What helps where code asks a question that has no reader."""
_MOST_KEPT = 32
"""How many blocks that tasks show between two cells are kept for the second; older ones go."""


class KernelSocket:
    """The kernel's end of its socket pair with the agent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.fd = connection.fileno()
        """The descriptor on which frames come."""
        self._came = select.poll()
        self._came.register(connection, select.POLLIN)
        # A process that user code forked has the socket too, but its frames would mix with this one's.
        self._pid = os.getpid()
        self._buffer = frames.FrameBuffer(frames.MAX_MESSAGE)
        self._received: deque[bytes] = deque()
        self._passed: list[int] = []
        self._unsent: list[bytes] = []
        self._last = 0
        self._clears = False
        """Whether what comes next replaces all that came before."""
        # Two threads that wait would take each other's answers. What flushes the streams must not hold it: a thread
        # that writes holds the stream's own lock, and then takes this one.
        self._lock = RLock()
        self.idle = False
        """Whether no cell runs: what tasks and threads show is kept for the next one, and nothing waits."""

    @property
    def _may_wait(self) -> bool:
        return not self.idle and os.getpid() == self._pid

    @property
    def has_frame(self) -> bool:
        """Whether a frame was read that came along with the one before."""
        return bool(self._received)

    def receive(self) -> tuple[bytes, bytes, int | None]:
        """Wait for a frame: kind, payload and the descriptor that came with it."""
        while not self._received:
            # In recvmsg the agent would wake this process also when it reads what was sent to it.
            self._came.poll()
            data, fds, _, _ = socket.recv_fds(self._connection, 1 << 16, 1)
            self._passed += fds
            if not data:
                os._exit(0)
            self._received += self._buffer.feed(data)
        message = self._received.popleft()
        # It may have come along with the message before, so it waits for the one that it belongs to.
        kind = message[:1]
        if kind in kernel_protocol.CELLS:
            self.idle = False
        return kind, message[1:], self._passed.pop(0) if kind in kernel_protocol.WITH_DESCRIPTOR else None

    def show(self, blocks: Iterable[bytes]) -> None:
        """Queue blocks after what was written so far; they are sent with the next message that waits or ends."""
        if os.getpid() == self._pid:
            made = [frames.pack(kernel_protocol.BLOCK + block) for block in blocks]  # which may print
            flush()
            with self._lock:
                self._clear()
                self._last = 0
                self._unsent += made
                if self.idle:
                    del self._unsent[:-_MOST_KEPT]

    def place(self, blocks: Iterable[bytes]) -> None:
        """Send blocks and wait until each has its place."""
        made = list(blocks)  # which may print
        if self._may_wait:
            flush()
            with self._lock:
                if self._may_wait:
                    self._clear()
                    self._place(made)
                    return
        self.show(made)

    def writing(self, fd: int) -> None:
        """Wait, before a stream is written, until what another one wrote has its place."""
        if (fd != self._last or self._clears) and self._may_wait:
            with self._lock:
                if self._may_wait:
                    self._clear()
                    if self._last not in {0, fd} or self._unsent:
                        self._wait(kernel_protocol.SYNC)
                    self._last = fd

    def clear(self, *, wait: bool) -> None:
        """Announce that what was written and shown so far does not count; with `wait` not before something follows."""
        if os.getpid() == self._pid:
            flush()
            with self._lock:
                if self.idle:
                    self._unsent.clear()
                    return
                self._clears = True
                if not wait:
                    self._clear()

    def _clear(self) -> None:
        """Clear what came before, where something follows that replaces it."""
        if self._clears and self._may_wait:
            self._clears = False
            self._place([content_blocks.CLEARED])

    def _place(self, blocks: Iterable[bytes]) -> None:
        self._last = 0
        for block in blocks:
            self._wait(kernel_protocol.BLOCK_WAITS + block)

    def move(self, connection: int) -> None:
        """Continue on another connection, in a fork of this process; what was not sent stays with the original."""
        os.dup2(connection, self.fd, inheritable=False)
        os.close(connection)
        self._pid = os.getpid()
        self._buffer = frames.FrameBuffer(frames.MAX_MESSAGE)
        for queue in (self._received, self._passed, self._unsent):
            queue.clear()
        self._last, self._clears = 0, False
        # Another thread of the original may have held it.
        self._lock = RLock()

    def report_fork(self) -> None:
        """Report this process's pid: it was forked from another kernel, and accepts cells."""
        self._connection.sendall(frames.pack(kernel_protocol.FORKED + str(os.getpid()).encode()))

    def ready(self) -> None:
        """Report that cells may be sent."""
        self._wait(kernel_protocol.SYNC)

    def ask(self, prompt: str, *, password: bool) -> str:
        """Request a line of input, and read it.

        Raises:
            EOFError: No more comes.
        """
        if os.getpid() == self._pid:
            flush()
            payload = json.dumps({"prompt": prompt[: kernel_protocol.MAX_ERROR], "password": password})
            with self._lock:
                self._wait(kernel_protocol.ASK + payload.encode())
        line = sys.stdin.readline()
        if not line:
            raise EOFError("the input has ended")
        return line.removesuffix("\n")

    def end(self, flags: int, message: str, error: bytes = b"") -> None:
        """Report how the cell ended. A process that the cell forked and let come back here ends instead."""
        flush()
        if os.getpid() != self._pid:
            os._exit(0)
        payload = message.replace("\0", "").encode("utf-8", "backslashreplace")[:2000]
        if error:
            payload += b"\0" + error
        with self._lock:
            self.idle = True
            unsent, self._unsent, self._last, self._clears = self._unsent, [], 0, False
            self._connection.sendall(b"".join([*unsent, frames.pack(kernel_protocol.END + bytes((flags,)) + payload)]))

    def _wait(self, message: bytes) -> None:
        unsent, self._unsent = self._unsent, []
        self._connection.sendall(b"".join([*unsent, frames.pack(message)]))
        while self.receive()[0] != kernel_protocol.GO_ON:
            pass


class NoChannel:
    """Drops the blocks of cells that are not shown."""

    def show(self, blocks: Iterable[bytes]) -> None:
        """Drop blocks, once made: what is made at least once takes less time in a fork."""
        for _ in blocks:
            pass

    place = show

    def clear(self, *, wait: bool) -> None:
        """Ignore it: nothing was shown."""


class OutputStream(io.FileIO):
    """Descriptor 1 or 2 below sys.stdout or sys.stderr. Closing it leaves the descriptor open."""

    def __init__(self, fd: int, channel: KernelSocket) -> None:
        super().__init__(fd, "w", closefd=False)
        self._channel = channel
        self._fd = fd

    def write(self, data: object) -> int:
        """Write in the order in which user code wrote."""
        self._channel.writing(self._fd)
        return super().write(data)  # type: ignore[arg-type]  # as above


class NoInput(io.TextIOBase):
    """Standard input of a call that takes none: reading it says so."""

    def readable(self) -> bool:
        """Answer as a file that can be read does."""
        return True

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # typeshed's own classes disagree
        """Refuse.

        Raises:
            EOFError: Always.
        """
        raise EOFError(f"this call takes no input. {INPUT_HINT}")

    def read(self, size: int | None = -1, /) -> str:
        """Refuse, as `readline` does."""
        return self.readline()


def open_stream(fd: int, channel: KernelSocket) -> io.TextIOWrapper:
    """Open a text stream that passes each line on as it is written."""
    buffer = io.BufferedWriter(OutputStream(fd, channel))
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def flush() -> None:
    """Pass on what the streams hold, if user code left them able to."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: S112 - user code may have put anything there
            continue
