"""Processes of a sandbox: started, followed, spoken to, let go of and found again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict, Unpack

from sandmesh._calls.call import Order
from sandmesh._calls.feed import Feed, OutputEvent
from sandmesh._calls.runner import run_call
from sandmesh._client.messages import read_name, read_seconds
from sandmesh._tools import ListProcesses, StartProcess, WaitForPort, build
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallFinished, DeadlineExceeded, InvalidArgument, WrongState
from sandmesh.events import Result
from sandmesh.sandbox.attachment import Attachment
from sandmesh.sandbox.line_search import Search, compile_pattern

# How long the sandbox may take to say that it has a process; it is a fork.
START_SECONDS = 60.0
# By what the sandbox's own deadline is later than the caller's, who then knows why.
WITHIN_SECONDS = 5.0


class ProcessOptions(TypedDict, total=False):
    """What `start` takes by keyword."""

    cwd: str | None
    """Where it runs, relative to the workspace, which is the default."""

    env: Mapping[str, str] | None
    """Variables on top of the sandbox's environment."""

    timeout: float | None
    """Seconds after which it is killed; None: it may run for as long as the sandbox."""

    pty: tuple[int, int] | None
    """Rows and columns of a terminal of its own; None: pipes."""

    user: str | None
    """Who it runs as: the sandbox's own user, the only one there is."""

    overflow: Literal["block", "drop_oldest"]
    """What happens when output is not taken: the process waits, or its oldest output goes and is marked."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """What is known of a process; one that has ended is known for ten minutes."""

    process_id: str
    command: str
    pid: int
    started: float
    """When, in seconds since 1970."""
    running: bool
    terminal: bool
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None


class OutputReader(AsyncIterator[OutputEvent]):
    """The output of a process as it comes: Output events, and Dropped where some is missing."""

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
        """Wait for events and give those there are; an empty list is the end."""
        return await self._feed.take()

    async def aclose(self) -> None:
        """Read no more; the process goes on."""
        self._feed.readers.discard(self)


class ProcessAsync:
    """A process of a sandbox, like subprocess.Popen.

    `async for event in process` gives its output. Who reads slowly slows it: output that was not taken holds it up once
    a window (1 MiB) is full. While nobody reads, the `wait` methods let the oldest output go and leave a Dropped.
    """

    def __init__(self, attachment: Callable[[], Attachment], feed: Feed, command: str, *, pty: bool | None) -> None:
        self._attachment = attachment
        self._feed = feed
        self._pty = pty
        self._ends_input = False
        self.command = command
        """What it runs."""

    @property
    def id(self) -> str:
        """Its id, by which `box.processes.attach` finds it again."""
        return self._feed.call_id

    @property
    def pid(self) -> int | None:
        """Its process id as the sandbox's processes see it; None where it was attached to after that was told."""
        return self._feed.pid

    @property
    def result(self) -> Result | None:
        """How it ended; None while it runs."""
        return self._feed.result

    def __aiter__(self) -> OutputReader:
        """Read its output."""
        return OutputReader(self._feed)

    async def write(self, data: bytes | str) -> None:
        """Write to its standard input, or type into its terminal; waits while much is not taken yet.

        Raises:
            CallFinished: It has ended.
            InvalidArgument: Its input was closed before.
        """
        if self._ends_input:
            raise InvalidArgument(f"the input of process {self.id} was closed before")
        await self._feed.write(data.encode() if isinstance(data, str) else data)

    async def close_stdin(self) -> None:
        """End its standard input; closing twice, or when it has ended, changes nothing. A terminal gets a Ctrl-D."""
        if not self._ends_input:
            self._ends_input = True
            with suppress(CallFinished):
                await self._feed.write(b"", end=True)

    async def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal; what runs there gets a SIGWINCH.

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
            InvalidArgument: There is no such signal.
        """
        request = pb.SignalCallRequest(signal=pb.Signal(number=_natural("a signal", number)), **self._named())
        await self._running().usable().ask(lambda stubs: stubs.calls.SignalCall, request, START_SECONDS)

    async def kill(self) -> None:
        """End it and its process group now; one that has ended stays as it is."""
        if not self._feed.ended:
            try:
                await self.send_signal(9)
            except CallFinished:
                return

    async def wait(self, timeout: float | None = None) -> Result:
        """Wait for its end: `exit_code`, or the `signal` that ended it; neither is ever invented.

        Raises:
            DeadlineExceeded: It still runs after so many seconds.
            SandboxLost: Its sandbox ended under it; the message says how.
        """
        await self._within(timeout, lambda: self._feed.ended, "did not end")
        self._feed.check()
        result = self._feed.result
        if result is None:
            raise WrongState(f"process {self.id} was let go of", {"state": "DETACHED"})
        return result

    async def wait_for_exit(self, timeout: float | None = None) -> Result:
        """Do what `wait` does."""
        return await self.wait(timeout)

    async def wait_for_log(self, pattern: str | re.Pattern[str], timeout: float | None = None) -> re.Match[str]:
        """Wait until a line of output, which may still be growing, matches; nothing of the output is taken away.

        Raises:
            InvalidArgument: The pattern does not compile.
            WrongState: It ended without such a line; the message has the last of its output.
            DeadlineExceeded: There was none in time; so has this one.
        """
        search = Search(compile_pattern(pattern), self._feed)
        what = f"wrote nothing that matches {search.pattern!r}"
        await self._within(timeout, lambda: search.found() or self._feed.ended, what)
        match = search.found()
        if match is None:
            raise self._ended_early(what)
        return match

    async def wait_for_port(self, port: int, path: str | None = None, timeout: float | None = None) -> None:
        """Wait until something listens at a port of the sandbox, or answers a GET of `path` there below 500.

        Raises:
            WrongState: The process ended before; the message has the last of its output.
            DeadlineExceeded: Nothing answered in time; so has this one.
        """
        declared = build(WaitForPort, port, path, None if timeout is None else read_seconds("timeout", timeout))
        attachment = self._attachment()
        order = attachment.order(declared, 0 if timeout is None else timeout + WITHIN_SECONDS)
        asking = asyncio.ensure_future(run_call(attachment.usable().mux, order))
        asking.add_done_callback(lambda _: self._feed.tell())
        try:
            await self._feed.wait_reading(lambda: asking.done() or self._feed.ended)
            if not asking.done():
                raise self._ended_early(f"nothing answered at port {port}")
            answer = asking.result()
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        if answer.is_error:
            raise DeadlineExceeded(f"process {self.id}: {answer['meta']['message']}{self._tail()}")

    async def detach(self) -> None:
        """Let go of it: it goes on, and its output waits for `attach` for 30 s; after that its oldest goes."""
        self._feed.detach()
        self._feed.on_error(WrongState(f"process {self.id} was let go of: attach to it", {"state": "DETACHED"}))

    async def __aenter__(self) -> Self:
        """Give itself; the end of the block ends the process."""
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

    async def _within(self, seconds: float | None, done: Callable[[], object], what: str) -> None:
        try:
            async with asyncio.timeout(None if seconds is None else read_seconds("timeout", seconds)):
                await self._feed.wait_reading(done)
        except TimeoutError:
            raise DeadlineExceeded(f"process {self.id} {what} within {seconds:g} s{self._tail()}") from None

    def _ended_early(self, what: str) -> WrongState:
        self._feed.check()
        ended = self._feed.result
        how = "ended" if ended is None else ended.message or f"ended with exit code {ended.exit_code}"
        message = f"process {self.id}: {how} Before that, {what}.{self._tail()}"
        return WrongState(message, {"state": "EXITED", "call_id": self.id})

    def _tail(self) -> str:
        tail = self._feed.tail.decode(errors="backslashreplace")
        return f" Its last output: {tail}" if tail else " It has written nothing."


class ProcessesAsync:
    """The processes of a sandbox: `box.processes`."""

    def __init__(self, attachment: Callable[[], Attachment], timeout: float) -> None:
        self._attachment = attachment
        self._timeout = timeout

    async def start(self, command: str | Sequence[str], **options: Unpack[ProcessOptions]) -> ProcessAsync:
        """Start a command line for the sandbox's shell (a text), or a program with its arguments (a list).

        `cwd` is where it runs, `env` what its environment has beside the sandbox's, `timeout` the seconds after which
        it is killed, `pty` the rows and columns of a terminal, `user` the sandbox's own. `overflow` "drop_oldest" lets
        the oldest output go, with a mark, where "block" has the process wait for its reader.

        Raises:
            InvalidArgument: An option does not fit.
            CapabilityMissing: The user is another one than the sandbox's.
        """
        declared = _declare(command, options)
        attachment = self._attachment()
        order = attachment.order(declared, declared.timeout + WITHIN_SECONDS if declared.timeout else 0)
        order.takes_input = True
        order.drops_oldest = _drops(options)
        said = declared.command if isinstance(declared.command, str) else " ".join(declared.command)
        return await self._follow(attachment, order, said, pty=declared.terminal is not None)

    async def attach(self, process_id: str) -> ProcessAsync:
        """Follow a process that was started before, by this program or another, from its first output that is kept.

        Whoever followed it until now is told so and gets no more.

        Raises:
            CallNotFound: There is no such process.
            CallExpired: It ended, and its output is no longer kept.
        """
        attachment = self._attachment()
        order = attachment.order(ListProcesses(), 0)
        order.attach_to = read_name("process_id", process_id)
        return await self._follow(attachment, order, "", pty=None)

    async def list(self) -> list[ProcessInfo]:
        """Give the processes that run, and those that ended in the last ten minutes, the oldest first."""
        attachment = self._attachment()
        answer = await run_call(attachment.usable().mux, attachment.order(ListProcesses(), self._timeout))
        return [ProcessInfo(**found) for found in (answer.structured or {}).get("processes", [])]

    async def _follow(self, attachment: Attachment, order: Order, command: str, *, pty: bool | None) -> ProcessAsync:
        feed = Feed(attachment.usable().mux, order)
        try:
            async with asyncio.timeout(min(self._timeout, START_SECONDS)):
                await feed.wait(lambda: feed.confirmed or feed.ended)
            feed.check()
        except TimeoutError:
            feed.cancel()
            message = "the sandbox did not say that it has the process; it was told to end it"
            raise DeadlineExceeded(message, changed=True) from None
        except BaseException:
            feed.cancel()
            raise
        return ProcessAsync(self._attachment, feed, command, pty=pty)


def _declare(command: str | Sequence[str], options: ProcessOptions) -> StartProcess:
    for name in options:
        if name not in ProcessOptions.__annotations__:
            known = ", ".join(ProcessOptions.__annotations__)
            raise TypeError(f"unexpected keyword argument {name!r}: there are {known}")
    size = options.get("pty")
    if size is not None and (not isinstance(size, tuple) or len(size) != 2):  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]  # callers need not be typed
        raise InvalidArgument(f"pty is rows and columns, like (24, 80), not {size!r}", {"argument": "pty"})
    env = options.get("env")
    return build(
        StartProcess,
        command if isinstance(command, str) else list(command),
        options.get("cwd"),
        None if env is None else dict(env),
        options.get("timeout"),
        None if size is None else {"rows": size[0], "columns": size[1]},
        options.get("user"),
    )


def _drops(options: ProcessOptions) -> bool:
    overflow = options.get("overflow", "block")
    if overflow not in ("block", "drop_oldest"):
        raise InvalidArgument(f'overflow is "block" or "drop_oldest", not {overflow!r}', {"argument": "overflow"})
    return overflow == "drop_oldest"


def _natural(what: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 1 << 16:  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise InvalidArgument(f"{what} is a whole number above 0, not {number!r}")
    return number
