"""The memory of kernels on its way from one sandbox to others of the same machine, as memory files.

The driver listens on a socket beside the agent's own, in a directory that is closed to user code, and names it in a
call; the agent connects to it and passes the files on, or takes them. A message is JSON about one kernel, with its
file; an empty message ends them.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, cast

from sandmesh.errors import InvalidArgument
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.files.arguments import Arguments, read_arguments
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.processes.spawner import ProcessSpawner
from sandmeshd.agent.python.cells import unless_stopped
from sandmeshd.agent.python.forks import save_kernel
from sandmeshd.agent.python.kernel_table import KernelTable, TableKernel
from sandmeshd.agent.python.kernels import continue_kernel
from sandmeshd.agent.python.languages import PYTHON
from sandmeshd.agent.userland.core.process_table import others

SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
"""What a file with the memory of a kernel must have before it leaves its sandbox."""
_SOCKET: Final = re.compile(r"kernels-[0-9a-f]{8}")
_MOST_BYTES: Final = 131_072
_MOST_KERNELS: Final = 64
_RESIDENT: Final = 21
"""The field of a process's `stat`, counted from the state on, that has its pages in memory."""


@dataclass(frozen=True)
class SaveKernels(Arguments):
    """Writes the memory of the kernels of Python that have run cells, each once the cells before have ended."""

    tool: ClassVar[str] = "kernels.save"
    socket: str
    timeout: int


@dataclass(frozen=True)
class RestoreKernels(Arguments):
    """Starts kernels that continue from memory that was saved."""

    tool: ClassVar[str] = "kernels.restore"
    socket: str


class KernelImages:
    """Saves and restores the kernels of one sandbox; `place` is the directory of the agent's own socket."""

    def __init__(self, kernels: KernelTable, processes: ProcessSpawner, memory: Memory, place: str) -> None:
        self._kernels = kernels
        self._processes = processes
        self._memory = memory
        self._place = place

    def services(self, workspace: str, environment: Mapping[str, str]) -> Mapping[str, Service]:
        """Return the handler of each service, where the agent has a socket of this machine."""

        async def save(request: SaveKernels, call: RunningCall) -> Outcome:
            call.started()
            call.stop_after(request.timeout)
            return await self._save(request, environment, call)

        async def restore(request: RestoreKernels, call: RunningCall) -> Outcome:
            call.started()
            await unless_stopped(call, asyncio.ensure_future(self._restore(request, workspace, environment)))
            return Outcome()

        runs: dict[type[Arguments], Any] = {SaveKernels: save, RestoreKernels: restore}
        return (
            {cls.tool: Service(partial(read_arguments, cls), run) for cls, run in runs.items()} if self._place else {}
        )

    async def _save(self, request: SaveKernels, environment: Mapping[str, str], call: RunningCall) -> Outcome:
        saved: list[str] = []
        not_copied: list[str] = []
        with _connected(self._place, request.socket) as connection:
            for name, one in list(self._kernels.by_id.items()):
                if one.language != PYTHON:
                    not_copied.append(f"kernel {name}: it runs {one.language}")
                elif one.cells.program and not one.cells.is_fresh():
                    not_copied.append(f"kernel {name}: it runs by {one.cells.program}, the image's own Python")
                if one.language != PYTHON or one.cells.is_fresh() or one.cells.program:
                    continue
                if len(saved) == _MOST_KERNELS:
                    raise ToolFailure(f"At most {_MOST_KERNELS} kernels can be copied: delete some.")
                image = os.memfd_create("kernel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
                try:
                    found = await one.cells.fork(call, partial(save_kernel, image=image, most=self._room()))
                    _seal(image)
                    facts = {"kernel_id": name, "environment": dict(environment)}
                    _send(connection, facts, image)
                except ToolFailure as failure:
                    raise ToolFailure(f"Kernel {name}: {failure}") from None
                finally:
                    os.close(image)
                saved.append(name)
                not_copied += [f"kernel {name}: {what}" for what in found.not_copied]
            connection.send(b"{}")
        return Outcome(structured=json.dumps({"kernels": saved, "not_copied": not_copied}).encode())

    def _room(self) -> int:
        """Return how many bytes a copy may have: the sandbox's limit counts it, or else the machine's memory does."""
        if not self._memory.is_limited:
            return _available_bytes()
        return self._memory.limit_bytes - os.sysconf("SC_PAGE_SIZE") * sum(
            int(fields[_RESIDENT]) for _, fields in others()
        )

    async def _restore(self, request: RestoreKernels, workspace: str, environment: Mapping[str, str]) -> None:
        with _connected(self._place, request.socket) as connection:
            while (found := await _receive(connection)) is not None:
                facts, image = found
                before: dict[str, Any] = facts.get("environment", {})
                changed = {name: value for name, value in environment.items() if before.get(name) != value}
                try:
                    kernel = await continue_kernel(self._processes, workspace, changed, image)
                except ToolFailure as failure:
                    raise ToolFailure(f"Kernel {facts['kernel_id']}: {failure}") from None
                finally:
                    os.close(image)
                name, known = str(facts["kernel_id"]), self._kernels.by_id
                if name not in known:
                    known[name] = TableKernel(PYTHON, self._kernels.make(PYTHON, workspace))
                await known[name].cells.replace(kernel, "replaced by another")


def _available_bytes() -> int:
    """Return the memory that the machine has left for new processes, without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - pathlib is a slow import
        sizes = (line.split() for line in file)
        return next((int(size[1]) << 10 for size in sizes if size[0] == "MemAvailable:"), 0)


def _connected(place: str, name: str) -> socket.socket:
    """Connect to the driver's socket.

    Raises:
        InvalidArgument: It is not there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setblocking(False)
    try:
        if not _SOCKET.fullmatch(name):
            raise FileNotFoundError
        connection.connect(f"{place}/{name}")
    except OSError:
        connection.close()
        raise InvalidArgument(f"{name!r} is not a socket of the driver's", {"field": "socket"}) from None
    return connection


def _seal(image: int) -> None:
    """Make the file what it is for good: user code here wrote it, and others will run from it.

    Raises:
        ToolFailure: Somebody can still write to it.
    """
    try:
        fcntl.fcntl(image, fcntl.F_ADD_SEALS, SEALS)
    except OSError:
        raise ToolFailure("The kernel cannot be copied: its copy is mapped by another process. Restart it.") from None


def _send(connection: socket.socket, facts: dict[str, Any], image: int) -> None:
    try:
        socket.send_fds(connection, [json.dumps(facts).encode()], [image])
    except OSError as error:
        raise ToolFailure(f"It could not be passed to the driver: {error}") from None


async def _receive(connection: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Return the next kernel and the descriptor of its memory, None behind the last one."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(connection)
    data, fds, _, _ = socket.recv_fds(connection, _MOST_BYTES, 1)
    if len(fds) == 1:
        with suppress(ValueError):
            return cast("dict[str, Any]", json.loads(data)), fds[0]
    if data != b"{}":
        raise ToolFailure("The driver has not passed all kernels on.")
    return None
