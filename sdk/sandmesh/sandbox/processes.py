"""Processes of a sandbox: start, output, input, signals, detach and attach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict, Unpack

from sandmesh._calls.call import Order
from sandmesh._calls.feed import Feed, OutputEvent
from sandmesh._calls.runner import run_call
from sandmesh._client.messages import read_name
from sandmesh._tools import build
from sandmesh._tools.processes import ListProcesses, StartProcess
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallFinished, DeadlineExceeded, InvalidArgument, WrongState
from sandmesh.results import Listing
from sandmesh.sandbox.handle import Attachment
from sandmesh.sandbox.process_waits import DEADLINE_MARGIN_SECONDS, WaitableProcess

# The most that the confirmation of a process may take; starting one is a fork.
START_SECONDS = 60.0


class ProcessOptions(TypedDict, total=False):
    """Keyword arguments of `start`."""

    cwd: str | None
    """The working directory, relative to the workspace, which is the default."""

    env: Mapping[str, str] | None
    """Variables on top of the sandbox's environment."""

    timeout: float | None
    """Seconds after which it is killed; None: it may run as long as the sandbox."""

    pty: tuple[int, int] | None
    """Rows and columns of its terminal; None: pipes."""

    user: str | None
    """The user that it runs as: the sandbox's own, which is the only one."""

    entrypoint: bool
    """Whether the list is the arguments of the image's ENTRYPOINT; an empty one: those of its CMD."""

    overflow: Literal["block", "drop_oldest"]
    """What happens when output is not read: the process blocks, or its oldest output is dropped and marked."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """The status of a process; one that has ended is listed for ten minutes."""

    process_id: str
    command: str
    pid: int
    started: float
    """The start time, in seconds since 1970."""
    running: bool
    terminal: bool
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None


class OutputReader(AsyncIterator[OutputEvent]):
    """The output of a process as it arrives: Output events, and Dropped where some is missing."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        feed.readers.add(self)

    async def __anext__(self) -> OutputEvent:
        """Wait for the next event.

        Raises:
            SandmeshError: The process is lost; the message says how.
        """
        taken = await self._feed.take(1)
        if not taken:
            raise StopAsyncIteration
        return taken[0]

    async def take(self) -> list[OutputEvent]:
        """Wait for events and return all that have arrived; an empty list is the end."""
        return await self._feed.take()

    async def aclose(self) -> None:
        """Stop reading; the process goes on."""
        self._feed.readers.discard(self)


class ProcessAsync(WaitableProcess):
    """A process of a sandbox, like subprocess.Popen.

    `async for event in process` yields its output. A slow reader slows the process: it blocks once a window (1 MiB) of
    output is unread. Without a reader, the `wait` methods drop the oldest output and leave a Dropped.
    """

    def __init__(self, attachment: Callable[[], Attachment], feed: Feed, command: str, *, pty: bool | None) -> None:
        super().__init__(attachment, feed)
        self._pty = pty
        self._ends_input = False
        self.command = command
        """The command line."""

    @property
    def pid(self) -> int | None:
        """The process id inside the sandbox; None if it was attached to after its Started event was discarded."""
        return self._feed.pid

    def __aiter__(self) -> OutputReader:
        """Read its output."""
        return OutputReader(self._feed)

    async def write(self, data: bytes | str) -> None:
        """Write to its standard input or its terminal; wait while the buffer is full.

        Raises:
            CallFinished: It has ended.
            InvalidArgument: Its input is closed.
        """
        if self._ends_input:
            raise InvalidArgument(f"the input of process {self.id} is closed")
        await self._feed.write(data.encode() if isinstance(data, str) else data)

    async def close_stdin(self) -> None:
        """Close its standard input; closing twice, or when it has ended, changes nothing. A terminal gets a Ctrl-D."""
        if not self._ends_input:
            self._ends_input = True
            with suppress(CallFinished):
                await self._feed.write(b"", end=True)

    async def resize(self, rows: int, columns: int) -> None:
        """Resize its terminal; its foreground processes get a SIGWINCH.

        Raises:
            InvalidArgument: It has no terminal.
            CallFinished: It has ended.
        """
        if self._pty is False:
            raise InvalidArgument(f"process {self.id} has no terminal to resize: start it with pty=(rows, columns)")
        size = pb.Resize(rows=_natural("rows", rows), columns=_natural("columns", columns))
        request = pb.ResizeCallRequest(resize=size, **self._named())
        await self._running().usable().ask(lambda stubs: stubs.calls.ResizeCall, request, START_SECONDS)

    async def send_signal(self, number: int) -> None:
        """Send a signal to it and its process group.

        Raises:
            CallFinished: It has ended.
            InvalidArgument: The signal does not exist.
        """
        request = pb.SignalCallRequest(signal=pb.Signal(number=_natural("a signal", number)), **self._named())
        await self._running().usable().ask(lambda stubs: stubs.calls.SignalCall, request, START_SECONDS)

    async def kill(self) -> None:
        """Kill it and its process group; one that has ended is left unchanged."""
        if not self._feed.ended:
            try:
                await self.send_signal(9)
            except CallFinished:
                return

    async def detach(self) -> None:
        """Detach from it: it goes on, and its output is kept for `attach` for 30 s; then the oldest is dropped."""
        self._feed.detach()
        self._feed.on_error(WrongState(f"process {self.id} was detached: attach to it", {"state": "DETACHED"}))

    async def __aenter__(self) -> Self:
        """Return the process; the end of the block ends it."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End the process if it still runs."""
        self._feed.cancel()
        self._feed.on_error(WrongState(f"process {self.id} was ended with its block", {"state": "CANCELLED"}))

    def _named(self) -> dict[str, Any]:
        record = self._attachment().record
        token = record.lease.fencing_token
        return {"sandbox_id": record.sandbox_id, "call_id": self.id, "fencing_token": token}

    def _running(self) -> Attachment:
        if self._feed.result is not None:
            raise CallFinished(f"process {self.id} has ended: it takes no input, signal or resize")
        self._feed.check()
        return self._attachment()


class ProcessesAsync:
    """The processes of a sandbox: `box.processes`."""

    def __init__(self, attachment: Callable[[], Attachment], timeout: float) -> None:
        self._attachment = attachment
        self._timeout = timeout

    async def start(self, command: str | Sequence[str], **options: Unpack[ProcessOptions]) -> ProcessAsync:
        """Start a command line in the sandbox's shell (a string), or a program with its arguments (a list).

        `cwd` is its working directory, `env` is added to the sandbox's environment, it is killed after `timeout`
        seconds, `pty` is the rows and columns of its terminal, `user` must be the sandbox's own. With
        `entrypoint` the list is the arguments of the program that the sandbox's image names. With `overflow`
        "block" the process waits for its reader, with "drop_oldest" its oldest output is dropped and marked.

        Raises:
            InvalidArgument: An option does not fit.
            CapabilityMissing: The user is not the sandbox's own.
        """
        declared = _declare(command, options)
        attachment = self._attachment()
        order = attachment.order(declared, declared.timeout + DEADLINE_MARGIN_SECONDS if declared.timeout else 0)
        order.takes_input = True
        order.drops_oldest = _drops(options)
        shown = declared.command if isinstance(declared.command, str) else " ".join(declared.command)
        return await self._follow(attachment, order, shown, pty=declared.terminal is not None)

    async def attach(self, process_id: str) -> ProcessAsync:
        """Attach to a process that this or another program started, from its first output that is kept.

        The program that was attached until now is detached.

        Raises:
            CallNotFound: The process does not exist.
            CallExpired: It ended, and its output is no longer kept.
        """
        attachment = self._attachment()
        order = attachment.order(ListProcesses(), 0)
        order.attach_to = read_name("process_id", process_id)
        return await self._follow(attachment, order, "", pty=None)

    async def list(self) -> list[ProcessInfo]:
        """List the running processes and those that ended in the last ten minutes, oldest first."""
        attachment = self._attachment()
        result = await run_call(attachment.usable().mux, attachment.order(ListProcesses(), self._timeout))
        return Listing(ProcessInfo(**found) for found in (result.structured or {}).get("processes", []))

    async def _follow(self, attachment: Attachment, order: Order, command: str, *, pty: bool | None) -> ProcessAsync:
        feed = Feed(attachment.usable().mux, order)
        try:
            async with asyncio.timeout(min(self._timeout, START_SECONDS)):
                await feed.wait(lambda: feed.confirmed or feed.ended)
            feed.check()
        except TimeoutError:
            feed.cancel()
            message = "the sandbox did not confirm the process, and was told to end it"
            raise DeadlineExceeded(message, changed=True) from None
        except BaseException:
            feed.cancel()
            raise
        return ProcessAsync(self._attachment, feed, command, pty=pty)


def _declare(command: str | Sequence[str], options: ProcessOptions) -> StartProcess:
    for name in options:
        if name not in ProcessOptions.__annotations__:
            known = ", ".join(ProcessOptions.__annotations__)
            raise TypeError(f"unexpected keyword argument {name!r}: choose from {known}")
    size = options.get("pty")
    if size is not None and (not isinstance(size, tuple) or len(size) != 2):  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]  # callers need not be typed
        raise InvalidArgument(f"pty must be rows and columns, like (24, 80), not {size!r}", {"argument": "pty"})
    env = options.get("env")
    return build(
        StartProcess,
        command if isinstance(command, str) else list(command),
        options.get("cwd"),
        None if env is None else dict(env),
        options.get("timeout"),
        None if size is None else {"rows": size[0], "columns": size[1]},
        options.get("user"),
        options.get("entrypoint", False),
    )


def _drops(options: ProcessOptions) -> bool:
    overflow = options.get("overflow", "block")
    if overflow not in ("block", "drop_oldest"):
        raise InvalidArgument(f'overflow must be "block" or "drop_oldest", not {overflow!r}', {"argument": "overflow"})
    return overflow == "drop_oldest"


def _natural(what: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 1 << 16:  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise InvalidArgument(f"{what} must be a positive integer, not {number!r}")
    return number
