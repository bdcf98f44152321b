"""Marks of a sandbox: its workspace and the states of its Python kernels, held to be returned to."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sandmesh._calls.call import Order
from sandmesh._files.calls import FileCalls
from sandmesh.errors import SandmeshError, WrongState
from sandmesh.sandbox.handle import Attachment
from sandmesh.sandbox.kernels import KernelMark, KernelsAsync
from sandmesh.sandbox.processes import ProcessesAsync


@dataclass(frozen=True, slots=True)
class SandboxMark:
    """A state of a sandbox that `box.rewind` returns to. It holds a copy of the workspace's files."""

    mark_id: str
    kernels: tuple[KernelMark, ...] = ()
    """The marks of its Python kernels."""
    not_copied: tuple[str, ...] = ()
    """Names of what a rewind does not bring back: processes, kernels of other languages, open sockets."""


class HeldMarks:
    """The marks of a box."""

    def __init__(self, attachment: Callable[[], Attachment], timeout: float) -> None:
        self._kernels = KernelsAsync(attachment, timeout)
        self._processes = ProcessesAsync(attachment, timeout)
        record = attachment().record

        def order(tool: str, arguments: bytes) -> Order:
            return Order(record.sandbox_id, record.lease.fencing_token, tool, arguments, timeout)

        self._files = FileCalls(order, lambda: attachment().usable())

    async def hold(self, timeout: float | None, *, kernels: bool | None) -> SandboxMark:
        """Hold the states of the kernels, each between two of its cells, and then the files."""
        held: list[KernelMark] = []
        missing = [f"process {one.pid}: {one.command}" for one in await self._processes.list() if one.pid]
        try:
            for kernel in [] if kernels is False else await self._kernels.list():
                try:
                    held.append(await (await self._kernels.get(kernel.kernel_id)).mark(timeout))
                except WrongState as error:
                    if kernels:
                        raise
                    missing.append(f"kernel {kernel.kernel_id}: {error.message}")
            note = json.dumps({"kernels": {one.kernel_id: one.mark_id for one in held}})
            answer = await self._files.ask("fs.hold_state", {"note": note})
        except BaseException:
            await asyncio.shield(self._drop_kernels(held))
            raise
        missing += [name for one in held for name in one.not_copied]
        return SandboxMark(answer["state_id"], tuple(held), tuple(missing))

    async def return_to(self, mark: SandboxMark | str) -> None:
        """Return the kernels to their states, which ends what they run, and then the files."""
        mark_id = _id_of(mark)
        kernels = [(await self._kernels.get(one.kernel_id), one) for one in await self._held(mark_id)]
        for kernel, one in kernels:
            await kernel.rewind(one)
        await self._act("fs.return_to_state", mark_id)

    async def drop(self, mark: SandboxMark | str) -> None:
        """Drop a mark with those of its kernels."""
        mark_id = _id_of(mark)
        held = await self._held(mark_id)
        await self._act("fs.drop_state", mark_id)
        await self._drop_kernels(held)

    async def _held(self, mark_id: str) -> list[KernelMark]:
        for state in (await self._files.ask("fs.list_states", {}))["states"]:
            if state["state_id"] == mark_id:
                return [KernelMark(held, kernel_id) for kernel_id, held in _noted(state["note"]).items()]
        raise _gone(mark_id)

    async def _act(self, call: str, mark_id: str) -> None:
        try:
            await self._files.ask(call, {"state_id": mark_id})
        except OSError as error:
            raise _gone(mark_id) if error.errno == errno.ENODATA else error from None

    async def _drop_kernels(self, marks: list[KernelMark]) -> None:
        for one in marks:
            # A kernel that was deleted took its marks along.
            with suppress(SandmeshError):
                await (await self._kernels.get(one.kernel_id)).drop(one)


def _noted(note: str) -> Mapping[str, str]:
    try:
        kernels: Any = json.loads(note)["kernels"]
        return {str(kernel_id): str(mark_id) for kernel_id, mark_id in kernels.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # another program's


def _id_of(mark: SandboxMark | str) -> str:
    return mark if isinstance(mark, str) else mark.mark_id


def _gone(mark_id: str) -> WrongState:
    message = f"there is no mark {mark_id!r}: it was dropped, or is another sandbox's"
    return WrongState(message, {"state": "NO_MARK", "mark_id": mark_id})
