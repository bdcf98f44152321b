"""Kernels of a sandbox: several of them, each with variables of its own, of Python and other languages."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sandmesh._calls.call import Call, Order
from sandmesh._calls.multiplexer import CallMux
from sandmesh._calls.runner import Collector, EventStream, run_call
from sandmesh._tools import (
    CreateKernel,
    DeleteKernel,
    InterruptKernel,
    ListKernels,
    RestartKernel,
    RunCell,
    Tool,
    build,
)
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import WrongState
from sandmesh.events import InputRequested
from sandmesh.results import ToolResult
from sandmesh.sandbox.attachment import Attachment

Answer: TypeAlias = Callable[[InputRequested], str | Awaitable[str]]
"""Gives a line of input, without its newline, for what the code asks."""

# What a collected result may hold; `stream` has no such bound.
OUTPUT_LIMIT = 64 * 1024 * 1024
# Ending and making kernels takes a moment; the first of another language many.
MAKE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What is known of a kernel."""

    kernel_id: str
    language: str
    busy: bool


class KernelAsync:
    """A kernel of a sandbox: its cells run one after another, those of several kernels side by side."""

    def __init__(self, attachment: Callable[[], Attachment], timeout: float, info: KernelInfo) -> None:
        self._attachment = attachment
        self._timeout = timeout
        self.id = info.kernel_id
        """Its id in the sandbox."""
        self.language = info.language
        """What its code is."""

    async def run(self, code: str, timeout: float | None = None, on_input: Answer | None = None) -> ToolResult:
        """Run code and give what it printed, displayed and raised; `structured["error"]` is what it raised, in parts.

        `on_input` is called with an InputRequested for each line that the code asks for, and gives the line.

        Raises:
            InvalidArgument: The code is empty, or the timeout is none.
        """
        attachment = self._attachment()
        order = self._order(code, timeout)
        order.output_limit = OUTPUT_LIMIT
        order.takes_input = on_input is not None
        mux = attachment.usable().mux
        return await run_call(mux, order, None if on_input is None else _Asked(mux, on_input))

    def stream(self, code: str, timeout: float | None = None, *, takes_input: bool = False) -> EventStream:
        """Run code and give its events as they happen; with `takes_input`, InputRequested ones want an `answer`."""
        order = self._order(code, timeout)
        order.takes_input = takes_input
        return EventStream(lambda: self._attachment().usable().mux, order)

    async def interrupt(self) -> None:
        """Interrupt what runs, as Ctrl-C does; its variables stay."""
        await self._act(build(InterruptKernel, self.id))

    async def restart(self) -> None:
        """Give it a fresh process: what runs ends, and its variables are gone."""
        await self._act(build(RestartKernel, self.id))

    async def delete(self) -> None:
        """End it for good."""
        await self._act(build(DeleteKernel, self.id))

    def _order(self, code: str, timeout: float | None) -> Order:
        declared = build(RunCell, self.id, code, timeout)
        return self._attachment().order(declared, max(self._timeout, timeout or 0))

    async def _act(self, declared: Tool) -> None:
        await _ask(self._attachment(), declared)


class KernelsAsync:
    """The kernels of a sandbox: `box.kernels`."""

    def __init__(self, attachment: Callable[[], Attachment], timeout: float) -> None:
        self._attachment = attachment
        self._timeout = timeout

    async def create(
        self, language: str = "python", kernel_id: str | None = None, cwd: str | None = None
    ) -> KernelAsync:
        """Make a kernel of Python, or of a Jupyter kernel that the sandbox has, like "bash".

        Raises:
            WrongState: There is none of that language, or one of that id already, or too many; the message says which.
        """
        answer = await _ask(self._attachment(), build(CreateKernel, language, kernel_id, cwd))
        return self._made(KernelInfo(**(answer.structured or {})))

    async def get(self, kernel_id: str) -> KernelAsync:
        """Give a kernel that is there; "default" is that of `run_ipython_cell`.

        Raises:
            WrongState: There is no such kernel.
        """
        found = await self.list()
        for info in found:
            if info.kernel_id == kernel_id:
                return self._made(info)
        known = ", ".join(info.kernel_id for info in found)
        raise WrongState(f"there is no kernel {kernel_id!r}: there are {known}", {"state": "MISSING"})

    async def list(self) -> list[KernelInfo]:
        """Give the kernels, the oldest first."""
        answer = await _ask(self._attachment(), ListKernels())
        return [KernelInfo(**found) for found in (answer.structured or {}).get("kernels", [])]

    def _made(self, info: KernelInfo) -> KernelAsync:
        return KernelAsync(self._attachment, self._timeout, info)


async def _ask(attachment: Attachment, declared: Tool) -> ToolResult:
    answer = await run_call(attachment.usable().mux, attachment.order(declared, MAKE_SECONDS))
    if answer.is_error:
        raise WrongState(str(answer["meta"]["message"]), {"state": "REFUSED"})
    return answer


class _Asked(Collector):
    """Collects a call whose code asks for input."""

    def __init__(self, mux: CallMux, answer: Answer) -> None:
        super().__init__(mux)
        self._answer = answer
        self._answering: set[asyncio.Task[None]] = set()

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Answer what is asked for, and collect the rest."""
        for event in events:
            if event.HasField("input_requested"):
                asked = InputRequested(event.input_requested.prompt, event.input_requested.password)
                task = asyncio.create_task(self._give(call, asked))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
        super().on_events(call, events, size)

    async def _give(self, call: Call, asked: InputRequested) -> None:
        try:
            line = await _called(self._answer, asked)
        except Exception as error:
            # It is the caller's own; the call ends with it.
            if not self.done.done():
                self.done.set_exception(error)
            return
        self._mux.send_line(call, line)


async def _called(answer: Answer, asked: InputRequested) -> str:
    # One that is no coroutine function may well wait for a person.
    given = answer(asked) if inspect.iscoroutinefunction(answer) else await asyncio.to_thread(answer, asked)
    return given if isinstance(given, str) else await given
