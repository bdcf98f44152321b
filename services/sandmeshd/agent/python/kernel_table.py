"""The kernels of a sandbox, by id; the one that run_ipython_cell uses is always there."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Call, Outcome
from sandmeshd.agent.python.cells import Cells

if TYPE_CHECKING:
    from sandmesh._tools import CreateKernel, ListKernels, RunCell

DEFAULT: Final = "default"
MOST_KERNELS: Final = 64
PYTHON: Final = frozenset({"python", "python3", "ipython"})


@dataclass(frozen=True)
class Kernel:
    """A kernel, what it speaks, and its cells."""

    language: str
    cells: Cells


class Named(Protocol):
    """What names a kernel."""

    @property
    def kernel_id(self) -> str:
        """The kernel's id."""
        ...


class Kernels:
    """Makes, lists and ends kernels, and runs cells in them."""

    def __init__(self, default: Cells, make: Callable[[str, str], Cells], workspace: str) -> None:
        self.default = default
        self._kernels = {DEFAULT: Kernel("python", default)}
        self.make = make
        """Makes one for a language and a directory; whoever asks closes it."""
        self._workspace = workspace
        self._numbers = itertools.count(1)

    async def close(self) -> None:
        """End all but the default one, which is another's."""
        for name in [name for name in self._kernels if name != DEFAULT]:
            await self._kernels.pop(name).cells.close()

    async def create(self, asked: CreateKernel, call: Call) -> Outcome:
        """Make a kernel; it answers once its process is there."""
        call.started()
        name = asked.kernel_id or next(free for free in self._names() if free not in self._kernels)
        if name in self._kernels:
            raise ToolFailure(f"There is a kernel {name!r} already: choose another id, or restart it.")
        if len(self._kernels) >= MOST_KERNELS:
            raise ToolFailure(f"The sandbox has {MOST_KERNELS} kernels, the most it may: delete some.")
        cwd = os.path.join(self._workspace, asked.cwd or "")  # noqa: PTH118 - pathlib would change what was asked for
        language = "python" if asked.language in PYTHON else asked.language
        kernel = self._kernels[name] = Kernel(language, self.make(language, cwd))
        try:
            await kernel.cells.renew()
        except BaseException:
            self._kernels.pop(name, None)
            raise
        return _told({"kernel_id": name, "language": language, "busy": False})

    async def list(self, _: ListKernels, call: Call) -> Outcome:
        """Describe the kernels, the oldest first."""
        call.started()
        found = [
            {"kernel_id": name, "language": kernel.language, "busy": kernel.cells.busy}
            for name, kernel in self._kernels.items()
        ]
        return _told({"kernels": found})

    async def run(self, cell: RunCell, call: Call) -> Outcome:
        """Run a cell in a kernel when its turn comes."""
        return await self._find(cell).cells.run(cell, call)

    async def interrupt(self, asked: Named, call: Call) -> Outcome:
        """Interrupt a kernel's cell."""
        call.started()
        self._find(asked).cells.interrupt()
        return Outcome()

    async def restart(self, asked: Named, call: Call) -> Outcome:
        """Give a kernel a fresh process."""
        call.started()
        await self._find(asked).cells.restart()
        return Outcome()

    async def delete(self, asked: Named, call: Call) -> Outcome:
        """End a kernel for good."""
        call.started()
        if asked.kernel_id == DEFAULT:
            raise ToolFailure("The default kernel stays: restart it to have a fresh one.")
        cells = self._find(asked).cells
        del self._kernels[asked.kernel_id]
        await cells.end("deleted")
        await cells.close()
        return Outcome()

    def _names(self) -> Iterator[str]:
        return (f"kernel-{number}" for number in self._numbers)

    def _find(self, asked: Named) -> Kernel:
        kernel = self._kernels.get(asked.kernel_id)
        if kernel is None:
            known = ", ".join(self._kernels)
            raise ToolFailure(f"There is no kernel {asked.kernel_id!r}: there are {known}.")
        return kernel


def _told(structured: dict[str, Any]) -> Outcome:
    return Outcome(structured=json.dumps(structured).encode())
