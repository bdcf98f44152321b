"""The tool that runs Python cells."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import Call, Outcome
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.processes.spawner import Ended, Processes
from sandmeshd.agent.python.kernels import Kernel
from sandmeshd.agent.userland import kernel_protocol

MakeKernel = Callable[[], Coroutine[Any, Any, Kernel]]

_WHY: Final[dict[int, str]] = {pb.END_REASON_TIMED_OUT: "ran out of time", pb.END_REASON_CANCELLED: "was cancelled"}


class Code(Protocol):
    """A cell: its code, and the seconds after which it is stopped."""

    @property
    def code(self) -> str:
        """The code."""
        ...

    @property
    def timeout(self) -> float | None:
        """The seconds; None for no limit."""
        ...


class Turns:
    """One at a time, in the order of asking."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: deque[asyncio.Future[bool]] = deque()

    @property
    def busy(self) -> bool:
        """Whether somebody has the turn."""
        return self._busy

    async def take(self, call: Call) -> bool:
        """Wait for the turn of a call; False if it was stopped before that came."""
        if not self._busy:
            self._busy = True
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        with call.stopping(lambda: None if turn.done() else turn.set_result(False)):
            return await turn

    def give(self) -> None:
        """End a turn that was taken."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self._busy = False


class Cells:
    """A kernel, replaced when it dies, and the cells that wait for it; `make` makes one."""

    def __init__(self, processes: Processes, make: MakeKernel, memory: Memory) -> None:
        self._processes = processes
        self._memory = memory
        self._kills = 0
        self._make = make
        self._running: Kernel | None = None
        self._ending = ""
        self._turns = Turns()
        self._loop = asyncio.get_running_loop()
        self._kernel: asyncio.Task[Kernel] | None = None

    def renew(self) -> asyncio.Task[Kernel]:
        """Have a kernel made now, so that the next cell finds one."""
        self._ending = ""
        self._kernel = self._loop.create_task(self._make())
        # One that fails is tried again by the cell that needs it, which then says why.
        self._kernel.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._kernel

    async def close(self) -> None:
        """Let go of the kernel."""
        if self._kernel is not None:
            self._kernel.cancel()
            found = await asyncio.gather(self._kernel, return_exceptions=True)
            for kernel in found:
                if isinstance(kernel, Kernel):
                    kernel.close()

    @property
    def busy(self) -> bool:
        """Whether a cell runs."""
        return self._running is not None

    def interrupt(self) -> None:
        """Interrupt the cell that runs, if one does."""
        if self._running is not None:
            self._running.process.signal(signal.SIGINT)

    async def end(self, how: str) -> Kernel:
        """End the kernel's process; a cell that runs ends with that in words. Returns: what it was."""
        self._ending = how
        kernel = await self._current()
        kernel.process.kill()
        await asyncio.shield(kernel.process.ended)
        return kernel

    async def restart(self) -> None:
        """Put a fresh kernel in this one's place; a cell that runs sees to it as it ends."""
        kernel = await self.end("restarted")
        if not self.busy:
            await self._bury(kernel)

    async def run(self, cell: Code, call: Call) -> Outcome:
        """Run a cell when its turn comes."""
        return await self._in_turn(cell, call, kernel_protocol.RUN)

    async def rehearse(self, cell: Code, call: Call) -> Outcome:
        """Run a cell that the kernel forgets, where it has run none yet and has nothing to do."""
        idle = not self._turns.busy and self._is_fresh()
        return await self._in_turn(cell, call, kernel_protocol.REHEARSE) if idle else Outcome(is_error=True)

    def _is_fresh(self) -> bool:
        task = self._kernel
        return task is not None and task.done() and task.exception() is None and not task.result().used

    async def _in_turn(self, cell: Code, call: Call, kind: int) -> Outcome:
        if not await self._turns.take(call):
            return await _stopped(call, "before it ran")
        try:
            return await self._run(cell, call, kind)
        finally:
            self._turns.give()

    async def _run(self, cell: Code, call: Call, kind: int) -> Outcome:
        kernel, news = await self._living()
        rehearsed = kind == kernel_protocol.REHEARSE
        kernel.used = not rehearsed
        call.started(kernel.pid, soon=False)
        if news:
            await call.text(news)
        alarm = None
        if cell.timeout is not None:
            alarm = self._loop.call_later(cell.timeout, call.stop, pb.END_REASON_TIMED_OUT)
        watch = _Watch(kernel, call)
        with call.stopping(watch.stop, kernel.process.signal):
            _send(kernel, kind, cell.code.encode("utf-8", "surrogatepass"), call)
            self._running = None if rehearsed else kernel
            try:
                end = await kernel.follow(call)
            finally:
                self._running = None
        for timer in (alarm, watch.timer):
            if timer is not None:
                timer.cancel()
        # One that gave in as its patience ended dies all the same.
        return await self._ended(kernel, call, None if watch.killed else end)

    async def _living(self) -> tuple[Kernel, str]:
        """Give the kernel, and what is to be said where it is another than the last cell's."""
        kernel, news = await self._current(), ""
        if kernel.process.ended.done():
            told = self._ending
            ended = await self._bury(kernel)
            if kernel.used and not told:
                how = "it ran out of memory" if self._is_victim(ended) else _how(ended)
                news = f"The kernel had died since the last cell ({how}): this one is fresh.\n"
            kernel = await self._current()
        self._kills = self._memory.kills()
        return kernel, news

    def _is_victim(self, ended: Ended) -> bool:
        """Say whether a kernel was ended for want of memory since the last cell began."""
        return ended.signal == signal.SIGKILL and self._memory.kills() > self._kills

    async def _current(self) -> Kernel:
        task = self._kernel
        if task is None or (task.done() and task.exception() is not None):
            task = self.renew()
        return task.result() if task.done() else await asyncio.shield(task)

    async def _bury(self, kernel: Kernel) -> Ended:
        """Have another kernel in the place of one that ends: once, whoever of those that saw its end comes first."""
        ended = await kernel.gone()
        if not kernel.buried:
            kernel.buried = True
            self.renew()
        return ended

    async def _ended(self, kernel: Kernel, call: Call, end: bytes | None) -> Outcome:
        if end is None or end[0] & kernel_protocol.LEAVES:
            how = self._ending
            ended = await self._bury(kernel)
            if end is None and how and call.stop_reason is None:
                return await _ended_by_order(call, how)
            if end is None and call.stop_reason is None and self._is_victim(ended):
                return await self._out_of_memory(call)
            return await (_dead(call, ended) if end is None else _left(call))
        if call.stop_reason is not None:
            # A late interrupt must not hit the next cell.
            await self._processes.settled()
            return await _stopped(call, "and was interrupted; the kernel and its variables were kept")
        line, _, raised = end[1:].partition(b"\0")
        failed = bool(end[0] & kernel_protocol.FAILED)
        message = line.decode("utf-8", "replace")
        return Outcome(is_error=failed, message=message, structured=_error(raised) if failed else b"")

    async def _out_of_memory(self, call: Call) -> Outcome:
        lost = "The kernel was ended: its variables are lost, and the next cell gets a fresh one."
        message = f"{self._memory.ran_out()} {lost}"
        await call.text(message + "\n")
        return Outcome(True, pb.END_REASON_OUT_OF_MEMORY, signal=signal.SIGKILL, message=message)


class _Watch:
    """Stops a cell: an interrupt first, and its kernel's death if that does not help."""

    def __init__(self, kernel: Kernel, call: Call) -> None:
        self._kernel = kernel
        self._patience = call.patience.interrupt
        self.timer: asyncio.TimerHandle | None = None
        self.killed = False

    def stop(self) -> None:
        self._kernel.process.signal(signal.SIGINT)
        self.timer = asyncio.get_running_loop().call_later(self._patience, self._kill)

    def _kill(self) -> None:
        self.killed = True
        self._kernel.process.kill()


def _error(raised: bytes) -> bytes:
    """Write what was raised as a structured result, if the kernel told it in the form that it should have."""
    try:
        error = json.loads(raised)
        told = {"name": str(error["name"]), "value": str(error["value"]), "traceback": list(error["traceback"])}
        return json.dumps({"error": told}).encode() if len(raised) <= kernel_protocol.MAX_ERROR else b""
    except (ValueError, TypeError, KeyError, RecursionError):
        return b""


def _send(kernel: Kernel, kind: int, code: bytes, call: Call) -> None:
    if call.input is None:
        kernel.send(kind, code)
    else:
        kernel.send_with_input(code, call.input.open_pipe())
        call.input.close_reader()


async def _stopped(call: Call, how: str) -> Outcome:
    message = f"The cell {_WHY[call.stop_reason or pb.END_REASON_CANCELLED]} {how}."
    await call.text(message + "\n")
    return Outcome(is_error=True, reason=call.stop_reason or pb.END_REASON_CANCELLED, message=message)


async def _ended_by_order(call: Call, how: str) -> Outcome:
    message = f"The kernel was {how} while the cell ran: its variables are gone."
    await call.text(message + "\n")
    return Outcome(is_error=True, reason=pb.END_REASON_CANCELLED, message=message)


async def _left(call: Call) -> Outcome:
    message = "The code asked the kernel to exit: its variables are gone and the next cell gets a fresh one."
    await call.text(message + "\n")
    return Outcome(message=message)


async def _dead(call: Call, ended: Ended) -> Outcome:
    if call.stop_reason is not None:
        return await _stopped(
            call, "and did not stop when interrupted: its kernel was killed and replaced, its variables are lost"
        )
    message = f"The kernel died ({_how(ended)}): its variables are lost, and the next cell gets a fresh one."
    await call.text(message + "\n")
    ours = ended.signal in call.signals_sent
    reason = pb.END_REASON_KILLED if ended.signal is not None and not ours else pb.END_REASON_EXITED
    return Outcome(True, reason, ended.exit_code, ended.signal, message)


def _how(ended: Ended) -> str:
    if ended.signal is not None:
        return f"signal {ended.signal}, {signal.strsignal(ended.signal) or 'unknown'}"
    return f"exit code {ended.exit_code}"
