"""Kernels of a sandbox, each with its own variables, of Python and other languages."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from sandmesh._calls.call import Call, Order
from sandmesh._calls.event_stream import EventStream
from sandmesh._calls.multiplexer import CallMux
from sandmesh._calls.runner import Collector, run_call
from sandmesh._tools import Tool, build
from sandmesh._tools.kernels import (
    CreateKernel,
    DeleteKernel,
    DropMark,
    ForkKernel,
    InterruptKernel,
    ListKernels,
    MarkKernel,
    RestartKernel,
    RewindKernel,
    RunCell,
)
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import SandmeshError, WrongState
from sandmesh.events import InputRequested
from sandmesh.results import Listing, ToolResult
from sandmesh.sandbox.handle import OUTPUT_LIMIT, Attachment

InputHandler: TypeAlias = Callable[[InputRequested], str | Awaitable[str]]
"""Returns a line of input, without its newline, for a request of the code."""

# Creating the first kernel of another language takes long.
CREATE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The status of a kernel."""

    kernel_id: str
    language: str
    busy: bool
    program: str = ""
    """The image's own Python that runs it; empty where the template's does, or it is of another language."""


@dataclass(frozen=True, slots=True)
class KernelMark:
    """A state of a kernel that `rewind` returns to. It holds the memory that the kernel has changed since."""

    mark_id: str
    kernel_id: str
    not_copied: tuple[str, ...] = ()
    """Names of what the kernel had and rewinding does not bring back: open sockets, child processes, asyncio tasks."""


K = TypeVar("K")


class Forks(list[K], Generic[K]):
    """What was forked, in order. Fewer than requested: `error` says why."""

    def __init__(self, forks: Iterable[K], error: SandmeshError | None, not_copied: Iterable[str]) -> None:
        super().__init__(forks)
        self.error = error
        """Why there are fewer than requested; None where there are not."""
        self.not_copied = tuple(not_copied)
        """Names of what the original has and its forks lack: open sockets, child processes, asyncio tasks."""


class KernelAsync:
    """A kernel of a sandbox: its cells run one after another, those of several kernels concurrently."""

    def __init__(self, attachment: Callable[[], Attachment], timeout: float, info: KernelInfo) -> None:
        self._attachment = attachment
        self._timeout = timeout
        self.id = info.kernel_id
        """Its id in the sandbox."""
        self.language = info.language
        """The language of its code."""

    async def run(self, code: str, timeout: float | None = None, on_input: InputHandler | None = None) -> ToolResult:
        """Run code and return what it printed, displayed and raised; `structured["error"]` is the parsed exception.

        `on_input` is called with an InputRequested for each line that the code reads, and returns the line.

        Raises:
            InvalidArgument: The code is empty, or the timeout is not positive.
        """
        attachment = self._attachment()
        order = self._order(code, timeout)
        order.output_limit = OUTPUT_LIMIT
        order.takes_input = on_input is not None
        mux = attachment.usable().mux
        return await run_call(mux, order, None if on_input is None else _InputCollector(mux, on_input))

    def stream(self, code: str, timeout: float | None = None, *, takes_input: bool = False) -> EventStream:
        """Run code and yield its events as they happen; with `takes_input`, reply to InputRequested with `answer`."""
        order = self._order(code, timeout)
        order.takes_input = takes_input
        return EventStream(lambda: self._attachment().usable().mux, order)

    async def interrupt(self) -> None:
        """Interrupt what runs, as Ctrl-C does; its variables stay."""
        await self._act(build(InterruptKernel, self.id))

    async def restart(self) -> None:
        """Restart its process: what runs ends, and its variables are lost."""
        await self._act(build(RestartKernel, self.id))

    async def delete(self) -> None:
        """Delete it."""
        await self._act(build(DeleteKernel, self.id))

    async def fork(self, count: int = 1, timeout: float | None = None) -> Forks[KernelAsync]:
        """Fork it into kernels with its variables and modules, copied on write; its random numbers are reseeded.

        It waits until the cells before have ended, at most `timeout` seconds. Files stay shared by all kernels.

        Raises:
            WrongState: Nothing was forked: it has threads, a cell still runs, or there are too many kernels.
        """
        result = await _call(self._attachment(), build(ForkKernel, self.id, count, timeout))
        answer = _structured(result)
        kernels = [KernelAsync(self._attachment, self._timeout, KernelInfo(**found)) for found in answer["kernels"]]
        error = WrongState(answer["refused"], {"state": "REFUSED"}) if answer["refused"] else None
        return Forks(kernels, error, answer["not_copied"])

    async def mark(self, timeout: float | None = None) -> KernelMark:
        """Hold its variables and modules as they are, for `rewind`; it waits as `fork` does.

        Raises:
            WrongState: As for `fork`.
        """
        answer = _structured(await _call(self._attachment(), build(MarkKernel, self.id, timeout)))
        return KernelMark(answer["mark_id"], answer["kernel_id"], tuple(answer["not_copied"]))

    async def rewind(self, mark: KernelMark) -> None:
        """Return to a mark, any number of times: a running cell ends, and later variables are gone. Files stay.

        Raises:
            WrongState: The mark is another kernel's, or is gone; then the kernel is unchanged.
        """
        await self._act(build(RewindKernel, mark.mark_id, self.id))

    async def drop(self, mark: KernelMark) -> None:
        """Drop a mark and free its memory.

        Raises:
            WrongState: It does not exist.
        """
        await self._act(build(DropMark, mark.mark_id))

    def _order(self, code: str, timeout: float | None) -> Order:
        declared = build(RunCell, self.id, code, timeout)
        return self._attachment().order(declared, max(self._timeout, timeout or 0))

    async def _act(self, declared: Tool) -> None:
        await _call(self._attachment(), declared)


class KernelsAsync:
    """The kernels of a sandbox: `box.kernels`."""

    def __init__(self, attachment: Callable[[], Attachment], timeout: float) -> None:
        self._attachment = attachment
        self._timeout = timeout

    async def create(
        self, language: str = "python", kernel_id: str | None = None, cwd: str | None = None
    ) -> KernelAsync:
        """Create a kernel of "python", "javascript", "typescript", "bash", or a Jupyter kernel that is installed.

        Raises:
            WrongState: The language is not installed, the id is in use, or there are too many; the message says which.
        """
        result = await _call(self._attachment(), build(CreateKernel, language, kernel_id, cwd))
        return self._kernel(KernelInfo(**(result.structured or {})))

    async def fork(
        self, count: int = 1, kernel_id: str = "default", timeout: float | None = None
    ) -> Forks[KernelAsync]:
        """Fork a Python kernel, as `fork` of a kernel does.

        Raises:
            WrongState: As there.
        """
        return await self._kernel(KernelInfo(kernel_id, "python", False)).fork(count, timeout)

    async def get(self, kernel_id: str) -> KernelAsync:
        """Return an existing kernel; "default" is the one of `run_ipython_cell`.

        Raises:
            WrongState: The kernel does not exist.
        """
        found = await self.list()
        for info in found:
            if info.kernel_id == kernel_id:
                return self._kernel(info)
        known = ", ".join(info.kernel_id for info in found)
        raise WrongState(f"the kernel {kernel_id!r} does not exist: there are {known}", {"state": "MISSING"})

    async def list(self) -> list[KernelInfo]:
        """List the kernels, oldest first."""
        result = await _call(self._attachment(), ListKernels())
        return Listing(KernelInfo(**found) for found in (result.structured or {}).get("kernels", []))

    def _kernel(self, info: KernelInfo) -> KernelAsync:
        return KernelAsync(self._attachment, self._timeout, info)


def _structured(result: ToolResult) -> dict[str, Any]:
    return result.structured or {}


async def _call(attachment: Attachment, declared: Tool) -> ToolResult:
    result = await run_call(attachment.usable().mux, attachment.order(declared, CREATE_SECONDS))
    if result.is_error:
        raise WrongState(str(result["meta"]["message"]), {"state": "REFUSED"})
    return result


class _InputCollector(Collector):
    """Collects a call's events and replies to its requests for input."""

    def __init__(self, mux: CallMux, handler: InputHandler) -> None:
        super().__init__(mux)
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Reply to requests for input, and collect the other events."""
        for event in events:
            if event.HasField("input_requested"):
                request = InputRequested(event.input_requested.prompt, event.input_requested.password)
                task = asyncio.create_task(self._reply(call, request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        super().on_events(call, events, size)

    async def _reply(self, call: Call, request: InputRequested) -> None:
        try:
            line = await _handled(self._handler, request)
        except Exception as error:
            # The handler is the caller's: the call ends with its exception.
            if not self.done.done():
                self.done.set_exception(error)
            return
        self._mux.send_input(call, call.next_line(line))


async def _handled(handler: InputHandler, request: InputRequested) -> str:
    # A plain function may well wait for a person.
    is_async = inspect.iscoroutinefunction(handler)
    line = handler(request) if is_async else await asyncio.to_thread(handler, request)
    return line if isinstance(line, str) else await line
