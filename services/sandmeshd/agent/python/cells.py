"""Runs the cells of one kernel, one after another, and replaces the kernel when it dies."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.processes.spawner import ProcessEnd, ProcessSpawner
from sandmeshd.agent.python.kernels import KernelProcess
from sandmeshd.agent.userland.python import kernel_protocol

R = TypeVar("R")
MakeKernel = Callable[[], Coroutine[Any, Any, KernelProcess]]

_STOPPED: Final[dict[int, str]] = {pb.END_REASON_TIMED_OUT: "ran out of time", pb.END_REASON_CANCELLED: "was cancelled"}


async def unless_stopped(call: RunningCall, task: asyncio.Task[R]) -> R:
    """Return the result of a task, which is cancelled if the call is stopped.

    Raises:
        ToolFailure: The call was stopped.
    """

    def cancel() -> None:
        task.cancel()

    with call.stopping(cancel):
        try:
            return await task
        except asyncio.CancelledError:
            if call.stop_reason is None:
                raise
            raise ToolFailure("The call ended before its kernel had started.") from None


class Code(Protocol):
    """A cell: its code and its timeout."""

    @property
    def code(self) -> str:
        """The code."""
        ...

    @property
    def timeout(self) -> float | None:
        """In seconds; None for no limit."""
        ...


class Turns:
    """The turns of calls that need a kernel for themselves, in the order in which they came."""

    def __init__(self) -> None:
        self.taken = False
        """Whether a cell runs or is about to."""
        self._waiting: deque[asyncio.Future[bool]] = deque()

    async def take(self, call: RunningCall) -> bool:
        """Wait until those who came before have ended; return False if the call was stopped first."""
        if not self.taken:
            self.taken = True
            return True
        granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        with call.stopping(lambda: None if granted.done() else granted.set_result(False)):
            return await granted

    def give(self) -> None:
        """Pass the turn to the next call that was not stopped meanwhile."""
        while self._waiting:
            granted = self._waiting.popleft()
            if not granted.done():
                granted.set_result(True)
                return
        self.taken = False


class Cells:
    """A kernel, replaced when it dies, and the cells that wait for it; `make` starts one."""

    def __init__(self, processes: ProcessSpawner, make: MakeKernel, memory: Memory) -> None:
        self._processes = processes
        self._memory = memory
        self._oom_kills = 0
        self._make = make
        self._running: KernelProcess | None = None
        self._turns = Turns()
        self._loop = asyncio.get_running_loop()
        self._kernel: asyncio.Future[KernelProcess] | None = None
        self._live: KernelProcess | None = None
        """The kernel of the last cell, while it was not replaced."""

    def renew(self) -> asyncio.Task[KernelProcess]:
        """Start a kernel, so that the next cell finds one."""
        self._live = None
        self._kernel = task = self._loop.create_task(self._make())
        # The next cell retries a failed start and reports its error.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task

    async def close(self) -> None:
        """Close the kernel."""
        if self._kernel is not None:
            self._kernel.cancel()
            for kernel in await asyncio.gather(self._kernel, return_exceptions=True):
                if isinstance(kernel, KernelProcess):
                    kernel.close()

    @property
    def busy(self) -> bool:
        """Whether a cell runs."""
        return self._running is not None

    @property
    def program(self) -> str:
        """The image's own Python that runs the kernel; empty where another does, or none has started."""
        task = self._kernel
        return "" if task is None or not task.done() or task.exception() else task.result().program

    async def interrupt(self) -> None:
        """Interrupt the running cell, if there is one, and wait until the signal was sent.

        Raises:
            ToolFailure: It could not be sent.
        """
        if self._running is not None:
            self._running.process.signal(signal.SIGINT)
            # What the caller sends next, such as a line of input, must not reach the cell before.
            await self._processes.settled()

    async def end(self, cause: str) -> KernelProcess:
        """Kill the kernel's process and return the kernel; a running cell ends with a message that has the cause."""
        kernel = await self._current()
        kernel.end_cause = f"{cause} while the cell ran: its variables are gone"
        kernel.process.stop()
        await asyncio.shield(kernel.process.ended)
        return kernel

    async def restart(self) -> None:
        """Replace the kernel by a fresh one; a running cell does that as it ends."""
        kernel = await self.end("restarted")
        if not self.busy:
            await self._replace(kernel)

    async def fork(self, call: RunningCall, fork: Callable[[KernelProcess], Coroutine[Any, Any, R]]) -> R:
        """Call `fork` with the kernel once the cells before have ended, and return its result.

        Raises:
            ToolFailure: It was not forked; the message says why.
        """
        if not await self._turns.take(call):
            raise ToolFailure("A cell ran in the kernel until this call ended: it was not forked.")
        try:
            kernel, notice = await unless_stopped(call, self._loop.create_task(self._live_kernel()))
            if notice:
                raise ToolFailure(f"{notice.strip()} It was not forked: what it had is gone.")
            return await unless_stopped(call, self._loop.create_task(fork(kernel)))
        finally:
            self._turns.give()

    async def replace(self, kernel: KernelProcess, cause: str = "") -> None:
        """Replace the kernel, if there is one, by another; a running cell ends with a message that has the cause."""
        current, self._live = self._kernel, None
        self._kernel = self._loop.create_future()
        self._kernel.set_result(kernel)
        for replaced in () if current is None else await asyncio.gather(current, return_exceptions=True):
            if isinstance(replaced, KernelProcess):
                replaced.replaced, replaced.end_cause = True, cause
                replaced.process.stop()
                await replaced.gone()

    async def run(self, cell: Code, call: RunningCall, kind: bytes = kernel_protocol.RUN) -> Outcome:
        """Run a cell once those before it have ended."""
        call.stop_after(cell.timeout)
        if not await self._turns.take(call):
            return await _stopped(call, "before it ran")
        try:
            return await self._run(cell, call, kind)
        finally:
            self._turns.give()

    async def run_warm_up(self, cell: Code, call: RunningCall) -> Outcome:
        """Run a cell that the kernel forgets, where the kernel has run none yet and is idle."""
        idle = not self._turns.taken and self.is_fresh()
        return await self.run(cell, call, kernel_protocol.WARM_UP) if idle else Outcome(is_error=True)

    def is_fresh(self) -> bool:
        """Return whether the kernel runs, and has run no cell."""
        task = self._kernel
        return task is not None and task.done() and task.exception() is None and not task.result().used

    async def _run(self, cell: Code, call: RunningCall, kind: bytes) -> Outcome:
        kernel, notice = self._live, ""
        if kernel is None or kernel.process.ended.done():
            found = await self._find_kernel(call)
            if found is None:
                return await _stopped(call, "before it ran")
            kernel, notice = found
        if self._memory.is_limited:
            self._oom_kills = self._memory.oom_kills()
        kernel.used = counts = kind != kernel_protocol.WARM_UP
        call.started(kernel.pid, soon=False)
        if notice:
            await call.text(notice)
        with call.stopping(partial(kernel.stop, call.timeouts.interrupt), kernel.process.signal):
            code = cell.code.encode("utf-8", "surrogatepass")
            if call.input is None:
                kernel.send(kind, code)
            else:
                kernel.send_with_descriptor(kernel_protocol.RUN_WITH_INPUT, code, call.input.open_pipe())
                call.input.close_reader()
            self._running = kernel if counts else None
            try:
                end = await kernel.follow(call)
            finally:
                self._running = None
        if end is None or end[0] & kernel_protocol.LEAVES or call.stop_reason is not None:
            return await self._interrupted(kernel, call, end)
        line, _, raised = end[1:].partition(b"\0")
        failed = bool(end[0] & kernel_protocol.FAILED)
        message = line.decode("utf-8", "replace")
        return Outcome(is_error=failed, message=message, structured=_structured_error(raised) if failed else b"")

    async def _find_kernel(self, call: RunningCall) -> tuple[KernelProcess, str] | None:
        """Return what `_live_kernel` does, None if the call is stopped before there is a kernel."""
        try:
            return await unless_stopped(call, self._loop.create_task(self._live_kernel()))
        except ToolFailure:
            if call.stop_reason is None:
                raise
            return None

    async def _live_kernel(self) -> tuple[KernelProcess, str]:
        """Return the kernel, and a notice for the cell if it is not the last cell's."""
        kernel, notice = await self._current(), ""
        if kernel.process.ended.done():
            expected = bool(kernel.end_cause)
            ended = await self._replace(kernel)
            if kernel.used and not expected:
                cause = "it ran out of memory" if self._ran_out_of_memory(ended) else _describe(ended)
                notice = f"The kernel had died since the last cell ({cause}): this one is fresh.\n"
            kernel = await self._current()
        self._live = kernel
        return kernel, notice

    def _ran_out_of_memory(self, ended: ProcessEnd) -> bool:
        """Return whether a kernel was killed by the OOM killer since the last cell began."""
        return ended.signal == signal.SIGKILL and self._memory.oom_kills() > self._oom_kills

    async def _current(self) -> KernelProcess:
        task = self._kernel
        if task is None or (task.done() and task.exception() is not None):
            task = self.renew()
        return task.result() if task.done() else await asyncio.shield(task)

    async def _replace(self, kernel: KernelProcess) -> ProcessEnd:
        """Start another kernel in place of one that ends, once, however many notice."""
        ended = await kernel.gone()
        if not kernel.replaced:
            kernel.replaced = True
            self.renew()
        return ended

    async def _interrupted(self, kernel: KernelProcess, call: RunningCall, end: bytes | None) -> Outcome:
        """Return the outcome of a cell that was stopped or lost its kernel."""
        if kernel.stop_timer is not None:
            kernel.stop_timer.cancel()
        if end is not None and not kernel.killed and not end[0] & kernel_protocol.LEAVES:
            # A late interrupt must not hit the next cell.
            await self._processes.settled()
            return await _stopped(call, "and was interrupted; the kernel and its variables were kept")
        cause = kernel.end_cause
        ended = await self._replace(kernel)
        # A cell that ended in the moment of the kill has lost its kernel all the same.
        if end is not None and not kernel.killed:
            return await _exited(call)
        if call.stop_reason is None and cause:
            return await _killed_on_request(call, cause)
        if call.stop_reason is None and self._ran_out_of_memory(ended):
            return await _out_of_memory(call, self._memory)
        return await _died(call, ended)


async def _out_of_memory(call: RunningCall, memory: Memory) -> Outcome:
    lost = "The kernel was killed: its variables are lost, and the next cell gets a fresh one."
    message = f"{memory.out_of_memory_message()} {lost}"
    await call.text(message + "\n")
    return Outcome(True, pb.END_REASON_OUT_OF_MEMORY, signal=signal.SIGKILL, message=message)


def _structured_error(raised: bytes) -> bytes:
    """Return an exception as a structured result, if the kernel reported it in the right form."""
    try:
        error = json.loads(raised)
        fields = {"name": str(error["name"]), "value": str(error["value"]), "traceback": list(error["traceback"])}
        return json.dumps({"error": fields}).encode() if len(raised) <= kernel_protocol.MAX_ERROR else b""
    except (ValueError, TypeError, KeyError, RecursionError):
        return b""


async def _stopped(call: RunningCall, detail: str) -> Outcome:
    message = f"The cell {_STOPPED[call.stop_reason or pb.END_REASON_CANCELLED]} {detail}."
    await call.text(message + "\n")
    return Outcome(is_error=True, reason=call.stop_reason or pb.END_REASON_CANCELLED, message=message)


async def _killed_on_request(call: RunningCall, cause: str) -> Outcome:
    message = f"The kernel was {cause}."
    await call.text(message + "\n")
    return Outcome(is_error=True, reason=pb.END_REASON_CANCELLED, message=message)


async def _exited(call: RunningCall) -> Outcome:
    message = "The code asked the kernel to exit: its variables are gone and the next cell gets a fresh one."
    await call.text(message + "\n")
    return Outcome(message=message)


async def _died(call: RunningCall, ended: ProcessEnd) -> Outcome:
    if call.stop_reason is not None:
        return await _stopped(
            call, "and did not stop when interrupted: its kernel was killed and replaced, its variables are lost"
        )
    message = f"The kernel died ({_describe(ended)}): its variables are lost, and the next cell gets a fresh one."
    await call.text(message + "\n")
    by_caller = ended.signal in call.signals_sent
    reason = pb.END_REASON_KILLED if ended.signal is not None and not by_caller else pb.END_REASON_EXITED
    return Outcome(True, reason, ended.exit_code, ended.signal, message)


def _describe(ended: ProcessEnd) -> str:
    if ended.failure:
        return ended.failure.rstrip(".")
    if ended.signal is not None:
        return f"signal {ended.signal}, {signal.strsignal(ended.signal) or 'unknown'}"
    return f"exit code {ended.exit_code}"
