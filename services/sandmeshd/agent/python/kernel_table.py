"""The kernels of a sandbox by id; the default one, which run_ipython_cell uses, always exists."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.python.cells import Cells, unless_stopped
from sandmeshd.agent.python.forks import fork_kernel
from sandmeshd.agent.python.languages import PYTHON, language_name

if TYPE_CHECKING:
    from sandmesh._tools import Tool
    from sandmesh._tools.kernels import (
        CreateKernel,
        DropMark,
        ForkKernel,
        ListKernels,
        MarkKernel,
        RewindKernel,
        RunCell,
        RunCode,
    )
    from sandmeshd.agent.calls.toolbox import Handler
    from sandmeshd.agent.python.kernels import KernelProcess

DEFAULT: Final = "default"
MOST_KERNELS: Final = 256
"""Kernels and marks together: each has three descriptors in the agent, and a process."""
_FULL: Final = f"The sandbox has {MOST_KERNELS} kernels and marks, the maximum: delete some."


@dataclass(frozen=True)
class TableKernel:
    """A kernel: its language and its cells."""

    language: str
    cells: Cells


@dataclass(frozen=True)
class Mark:
    """A fork of a kernel that runs no cells: others are forked from it to rewind the kernel."""

    kernel_id: str
    kernel: KernelProcess

    async def fork(self, call: RunningCall) -> KernelProcess:
        """Fork a kernel from it.

        Raises:
            ToolFailure: There is none; the message says why.
        """
        try:
            forks = await unless_stopped(call, asyncio.create_task(fork_kernel(self.kernel, 1)))
        except ToolFailure as failure:
            raise ToolFailure(f"The kernel is unchanged, as the mark's process cannot be forked: {failure}") from None
        return forks.kernels[0]


class KernelRequest(Protocol):
    """A request that names a kernel."""

    @property
    def kernel_id(self) -> str:
        """The kernel's id."""
        ...


class KernelTable:
    """Creates, lists and deletes kernels, and runs cells in them."""

    def __init__(self, default: Cells, make: Callable[[str, str], Cells], workspace: str) -> None:
        self.default = default
        self.by_id = {DEFAULT: TableKernel(PYTHON, default)}
        self.make = make
        """Makes the cells of a kernel for a language and a directory; the caller closes them."""
        self._marks: dict[str, Mark] = {}
        self._workspace = workspace
        self._numbers = itertools.count(1)

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        from sandmesh._tools import generic, kernels  # noqa: PLC0415 - unused agents do without

        return {
            generic.RunIpythonCell: self.default.run,
            kernels.CreateKernel: self.create,
            kernels.ListKernels: self.list,
            kernels.RunCell: self.run,
            kernels.RunCode: self.run_code,
            kernels.InterruptKernel: self.interrupt,
            kernels.RestartKernel: self.restart,
            kernels.DeleteKernel: self.delete,
            kernels.ForkKernel: self.fork,
            kernels.MarkKernel: self.mark,
            kernels.RewindKernel: self.rewind,
            kernels.DropMark: self.drop_mark,
        }

    async def close(self) -> None:
        """Close all but the default one, which has its own owner."""
        for name in [name for name in self.by_id if name != DEFAULT]:
            await self.by_id.pop(name).cells.close()
        while self._marks:
            self._marks.popitem()[1].kernel.close()

    async def create(self, request: CreateKernel, call: RunningCall) -> Outcome:
        """Create a kernel; the call ends once its process has started."""
        call.started()
        name = request.kernel_id or next(free for free in self._names() if free not in self.by_id)
        if name in self.by_id:
            raise ToolFailure(f"A kernel {name!r} already exists: choose another id, or restart it.")
        language = language_name(request.language)
        cwd = os.path.join(self._workspace, request.cwd or "")  # noqa: PTH118 - pathlib would normalize the path
        kernel = self._add(name, language, cwd)
        await self._start(name, kernel, call)
        return _structured({"kernel_id": name, "language": language, "busy": False})

    async def fork(self, request: ForkKernel, call: RunningCall) -> Outcome:
        """Fork a kernel into others; the call ends once all of them accept cells."""
        source = self._find_forkable(request)
        room = self._room(request.count)
        call.started()
        call.stop_after(request.timeout)
        forks = await source.cells.fork(call, partial(fork_kernel, count=min(request.count, room)))
        names: list[str] = []
        for kernel in forks.kernels:
            name = next(free for free in self._names() if free not in self.by_id)
            self.by_id[name] = TableKernel(PYTHON, self.make(PYTHON, self._workspace))
            await self.by_id[name].cells.replace(kernel)
            names.append(name)
        found = [{"kernel_id": name, "language": PYTHON, "busy": False} for name in names]
        refused = forks.refused or ("" if room >= request.count else _FULL)
        return _structured({"kernels": found, "refused": refused, "not_copied": forks.not_copied})

    async def mark(self, request: MarkKernel, call: RunningCall) -> Outcome:
        """Hold a kernel's state as it is."""
        source = self._find_forkable(request)
        self._room(1)
        call.started()
        call.stop_after(request.timeout)
        forks = await source.cells.fork(call, partial(fork_kernel, count=1))
        name = next(f"mark-{number}" for number in self._numbers)
        self._marks[name] = Mark(request.kernel_id, forks.kernels[0])
        return _structured({"mark_id": name, "kernel_id": request.kernel_id, "not_copied": forks.not_copied})

    async def rewind(self, request: RewindKernel, call: RunningCall) -> Outcome:
        """Replace a kernel by a fork of a mark: its variables are as they were then."""
        call.started()
        call.stop_after(request.timeout)
        cells, mark = self._find(request).cells, self._marks.get(request.mark_id)
        if mark is None or mark.kernel_id != request.kernel_id:
            known = ", ".join(name for name, one in self._marks.items() if one.kernel_id == request.kernel_id)
            raise ToolFailure(
                f"Kernel {request.kernel_id!r} has no mark {request.mark_id!r}; it has: {known or 'none'}. "
                "It is unchanged."
            )
        kernel = await mark.fork(call)
        await cells.replace(kernel, f"rewound to {request.mark_id} while the cell ran: what the cell did is undone")
        return Outcome()

    async def drop_mark(self, request: DropMark, call: RunningCall) -> Outcome:
        """End the process that holds a mark."""
        call.started()
        mark = self._marks.pop(request.mark_id, None)
        if mark is None:
            raise ToolFailure(f"Mark {request.mark_id!r} does not exist: it may have been dropped.")
        mark.kernel.process.stop()
        await mark.kernel.gone()
        return Outcome()

    async def list(self, _: ListKernels, call: RunningCall) -> Outcome:
        """Describe the kernels, the oldest first."""
        call.started()
        found = [
            {
                "kernel_id": name,
                "language": kernel.language,
                "busy": kernel.cells.busy,
                **({"program": program} if (program := kernel.cells.program) else {}),
            }
            for name, kernel in self.by_id.items()
        ]
        marks = [{"mark_id": name, "kernel_id": mark.kernel_id} for name, mark in self._marks.items()]
        return _structured({"kernels": found, "marks": marks})

    async def run(self, cell: RunCell, call: RunningCall) -> Outcome:
        """Run a cell in a kernel once those before it have ended."""
        return await self._find(cell).cells.run(cell, call)

    async def run_code(self, request: RunCode, call: RunningCall) -> Outcome:
        """Run code in the kernel of its language, which has the language's name and starts with its first code."""
        language = language_name(request.language)
        if language == PYTHON:
            return await self.default.run(request, call)
        kernel = self.by_id.get(language)
        if kernel is None:
            call.stop_after(request.timeout)
            kernel = self._add(language, language, self._workspace)
            await self._start(language, kernel, call)
        if kernel.language != language:
            raise ToolFailure(
                f"The kernel {language!r} runs {kernel.language}: delete it, or use another one by its id."
            )
        return await kernel.cells.run(request, call)

    async def interrupt(self, request: KernelRequest, call: RunningCall) -> Outcome:
        """Interrupt a kernel's running cell."""
        call.started()
        await self._find(request).cells.interrupt()
        return Outcome()

    async def restart(self, request: KernelRequest, call: RunningCall) -> Outcome:
        """Restart a kernel: it gets a fresh process."""
        call.started()
        await self._find(request).cells.restart()
        return Outcome()

    async def delete(self, request: KernelRequest, call: RunningCall) -> Outcome:
        """Delete a kernel."""
        call.started()
        if request.kernel_id == DEFAULT:
            raise ToolFailure("The default kernel cannot be deleted: restart it to get a fresh one.")
        cells = self._find(request).cells
        del self.by_id[request.kernel_id]
        for name in [name for name, mark in self._marks.items() if mark.kernel_id == request.kernel_id]:
            self._marks.pop(name).kernel.close()
        await cells.end("deleted")
        await cells.close()
        return Outcome()

    def _add(self, name: str, language: str, cwd: str) -> TableKernel:
        self._room(1)
        kernel = self.by_id[name] = TableKernel(language, self.make(language, cwd))
        return kernel

    def _room(self, wanted: int) -> int:
        """Return how many kernels and marks may be made, at most as many as wanted."""
        room = MOST_KERNELS - len(self.by_id) - len(self._marks)
        if room <= 0:
            raise ToolFailure(_FULL)
        return min(room, wanted)

    def _find_forkable(self, request: KernelRequest) -> TableKernel:
        kernel = self._find(request)
        if kernel.language != PYTHON:
            raise ToolFailure(f"Kernel {request.kernel_id!r} runs {kernel.language}: only kernels of Python can fork.")
        return kernel

    async def _start(self, name: str, kernel: TableKernel, call: RunningCall) -> None:
        try:
            await unless_stopped(call, kernel.cells.renew())
        except BaseException:
            self.by_id.pop(name, None)
            raise

    def _names(self) -> Iterator[str]:
        return (f"kernel-{number}" for number in self._numbers)

    def _find(self, request: KernelRequest) -> TableKernel:
        kernel = self.by_id.get(request.kernel_id)
        if kernel is None:
            known = ", ".join(self.by_id)
            raise ToolFailure(f"Kernel {request.kernel_id!r} does not exist: there are {known}.")
        return kernel


def _structured(structured: dict[str, Any]) -> Outcome:
    return Outcome(structured=json.dumps(structured).encode())
