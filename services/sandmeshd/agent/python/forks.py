"""Forks of a running kernel: it forks a process for them, which forks a kernel for each message of the agent."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, cast

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.scarcity import scarcity
from sandmeshd.agent.processes.spawner import ProcessGroup, ProcessSpawner, refusal
from sandmeshd.agent.python.kernels import KernelProcess, connect
from sandmeshd.agent.userland.python import kernel_protocol

_MOST_BYTES: Final = 65_536
_MOST_NAMED: Final = 65
_MOST_CHARACTERS: Final = 2_000
_MOST_ERRNO: Final = 4_096
_NOT_ADOPTED: Final = (
    "The kernel cannot be forked: its fork has ended, or this system does not hand it over, as gVisor does not."
)
_UNANSWERED: Final = 4
"""How many forks are requested ahead: their descriptors are open on both sides."""


@dataclass
class KernelForks:
    """The kernels that a kernel was forked into, why there are no more, and what they lack."""

    kernels: list[KernelProcess] = field(default_factory=list[KernelProcess])
    refused: str = ""
    """Why there are fewer than requested; empty where there are not."""
    not_copied: list[str] = field(default_factory=list[str])
    """Names of what the original has and its forks lack."""

    def close(self) -> None:
        """End all of them."""
        for kernel in self.kernels:
            kernel.process.kill()
            kernel.close()


async def fork_kernel(source: KernelProcess, count: int) -> KernelForks:
    """Fork an idle kernel into at most `count` others.

    Raises:
        ToolFailure: There is none; the message says why.
    """
    processes = source.process.processes
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        source.send_with_descriptor(kernel_protocol.FORK, b"", theirs.fileno())
    forks = KernelForks()
    try:
        with ours:
            forks.not_copied = _names(await _answer(ours))
            await _Requests(forks, processes, ours, source.program).send(count)
        await _adopt_all(forks, processes)
    except BaseException:
        forks.close()
        raise
    if not forks.kernels:
        raise ToolFailure(forks.refused)
    return forks


@dataclass(frozen=True)
class SavedKernel:
    """A kernel whose memory was written to a file."""

    size: int
    not_copied: list[str]


async def save_kernel(source: KernelProcess, image: int, most: int) -> SavedKernel:
    """Write the memory of an idle kernel, of at most so many bytes, to a file.

    Raises:
        ToolFailure: It was not written; the message says why.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with ours:
        with theirs:
            source.send_with_descriptor(kernel_protocol.FORK, b"", theirs.fileno())
        names = _names(await _answer(ours))
        socket.send_fds(ours, [b"save %d" % most], [image])
        answer = await _answer(ours)
    size = answer.get("saved")
    if not isinstance(size, int):
        raise ToolFailure(_refusal(answer))
    return SavedKernel(size, names)


class _Requests:
    """The requests to the process that forks, some ahead of their answers, which come in the same order."""

    def __init__(self, forks: KernelForks, processes: ProcessSpawner, control: socket.socket, program: str) -> None:
        self._program = program
        self._forks = forks
        self._processes = processes
        self._control = control
        self._unanswered: deque[KernelProcess] = deque()

    async def send(self, count: int) -> None:
        """Request so many forks, until one is refused, and take the answers."""
        try:
            for _ in range(count):
                if len(self._unanswered) == _UNANSWERED:
                    await self._take_answer()
                if self._forks.refused or not await self._request():
                    break
            while self._unanswered:
                await self._take_answer()
        finally:
            self._forks.kernels += self._unanswered

    async def _request(self) -> bool:
        def start(fds: list[int]) -> ProcessGroup:
            socket.send_fds(self._control, [b"fork"], fds)
            return self._processes.expect()

        try:
            self._unanswered.append(await connect(start))
            self._unanswered[-1].program = self._program
        except OSError as error:
            self._forks.refused = refusal(error.errno or errno.EIO)
            return False
        return True

    async def _take_answer(self) -> None:
        answer = await _answer(self._control)
        kernel = self._unanswered.popleft()
        if "forked" in answer:
            self._forks.kernels.append(kernel)
        else:
            self._forks.refused = self._forks.refused or _refusal(answer)
            self._processes.forget(kernel.process)
            kernel.close()


async def _adopt_all(forks: KernelForks, processes: ProcessSpawner) -> None:
    """Wait until the forks accept cells, and put them under the zygote's care; leave out those that ended."""
    ended = await asyncio.gather(*(_adopt(kernel, processes) for kernel in forks.kernels), return_exceptions=True)
    for kernel, error in zip(list(forks.kernels), ended, strict=True):
        if isinstance(error, ToolFailure):
            forks.kernels.remove(kernel)
            forks.refused = forks.refused or str(error)
            processes.forget(kernel.process)
            kernel.close()
        elif error is not None:
            raise error


async def _adopt(kernel: KernelProcess, processes: ProcessSpawner) -> None:
    pid = await kernel.forked()
    processes.adopt(kernel.process, pid)
    try:
        kernel.pid = await kernel.process.started
    except ToolFailure as error:
        if os.strerror(errno.ESRCH) in str(error):
            raise ToolFailure(_NOT_ADOPTED) from None
        raise
    kernel.used = True


async def _answer(control: socket.socket) -> dict[str, Any]:
    """Return the next message of the process that forks. It is not trusted: anything may come.

    Raises:
        ToolFailure: It has ended, or sends something else.
    """
    data = await asyncio.get_running_loop().sock_recv(control, _MOST_BYTES)
    if not data:
        raise ToolFailure(
            "The kernel ended before it was forked: by a lack of memory, or a pause that keeps files only."
        )
    return _read(data)


def _read(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ToolFailure("The kernel cannot be forked: it sent something that is not an answer. Restart it.")
    return cast("dict[str, Any]", answer)


def _names(answer: dict[str, Any]) -> list[str]:
    found = answer.get("not_copied")
    if not isinstance(found, list):
        raise ToolFailure(_refusal(answer))
    return [str(name)[:_MOST_CHARACTERS] for name in cast("list[object]", found)[:_MOST_NAMED]]


def _refusal(answer: dict[str, Any]) -> str:
    if (said := answer.get("refused")) is not None:
        return f"The kernel cannot be forked: {str(said)[:_MOST_CHARACTERS]}."
    number: Any = answer.get("errno")
    if number == errno.EAGAIN:
        return refusal(number)
    known = isinstance(number, int) and 0 < number < _MOST_ERRNO
    said = scarcity(number) or os.strerror(number) if known else "it told no reason"
    return f"The kernel cannot be forked: {said}."
