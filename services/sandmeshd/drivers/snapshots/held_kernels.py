"""The memory of kernels that a snapshot holds beside its files: memory files, which only this process has.

Sandboxes that start from the snapshot continue the kernels; all of them map the same files and copy a page when they
write to it. An agent passes them on over a socket that is made for that, beside its usual one.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import PoolExhausted, SandboxLost, SandboxStartFailed
from sandmeshd.agent.python.kernel_images import SEALS
from sandmeshd.agentlink.archives import kernels_restored, kernels_saved
from sandmeshd.runtime.processes.child_process import readable

HELD_SECONDS: Final = 300.0
_MOST_SNAPSHOTS: Final = 16
_MOST_KERNELS: Final = 64
_MOST_BYTES: Final = 131_072
_CONNECT_SECONDS: Final = 60.0
_CELLS_SECONDS: Final = 60.0


@dataclass(frozen=True)
class _Kernel:
    facts: bytes
    memory: int


class HeldKernels:
    """The kernels of the snapshots of one driver, for a few minutes each."""

    def __init__(self) -> None:
        self._held: dict[str, list[_Kernel]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def save(
        self, request: pb.SnapshotSandboxRequest, sandbox: pb.RuntimeSandbox, token: int
    ) -> tuple[list[str], list[str]]:
        """Hold the kernels of a running sandbox for a snapshot.

        Returns: their ids, and what they have and their copies lack.

        Raises:
            WrongState: One cannot be copied.
            PoolExhausted: This driver holds those of as many snapshots as it may.
            SandboxLost, LeaseLost: The agent does not answer, or has another token.
        """
        if len(self._held) >= _MOST_SNAPSHOTS:
            fix = f"try again later: it holds them for at most {HELD_SECONDS:g} s"
            raise PoolExhausted(f"the driver holds the kernels of {_MOST_SNAPSHOTS} snapshots; {fix}", {"fix": fix})
        snapshot_id = request.snapshot_id
        seconds = request.kernels_timeout.ToTimedelta().total_seconds() or _CELLS_SECONDS
        found: list[_Kernel] = []
        self._held[snapshot_id] = found
        try:
            async with _listening(sandbox) as (listener, name):
                taking = asyncio.create_task(_take(listener, found))
                try:
                    kernels, not_copied = await kernels_saved(sandbox, token, name, seconds)
                    await taking
                    if len(found) != len(kernels):
                        detail = f"{len(found)} of {len(kernels)} kernels came"
                        raise SandboxLost(f"what {sandbox.sandbox_id} passed on is not whole", {"detail": detail})
                finally:
                    taking.cancel()
        except BaseException:
            self.drop(snapshot_id)
            raise
        self._timers[snapshot_id] = asyncio.get_running_loop().call_later(HELD_SECONDS, self.drop, snapshot_id)
        return kernels, not_copied

    async def restore(self, snapshot_id: str, sandbox: pb.RuntimeSandbox, token: int) -> None:
        """Continue a snapshot's kernels in a sandbox that has just started.

        Raises:
            SandboxStartFailed: They are held no longer, or one does not run there.
            SandboxLost, LeaseLost: The agent does not answer, or has another token.
        """
        # Duplicates: the snapshot may be deleted meanwhile.
        held = [_Kernel(one.facts, os.dup(one.memory)) for one in self._held.get(snapshot_id, ())]
        if not held:
            message = f"the kernels of snapshot {snapshot_id} are held no longer: take another one"
            raise SandboxStartFailed(message, {"detail": message})
        try:
            async with _listening(sandbox) as (listener, name):
                giving = asyncio.create_task(_give(listener, held))
                try:
                    await kernels_restored(sandbox, token, name)
                finally:
                    giving.cancel()
        finally:
            _close(held)

    def drop(self, snapshot_id: str) -> None:
        """Hold a snapshot's kernels no longer."""
        timer = self._timers.pop(snapshot_id, None)
        if timer is not None:
            timer.cancel()
        _close(self._held.pop(snapshot_id, []))


def _close(kernels: list[_Kernel]) -> None:
    for kernel in kernels:
        os.close(kernel.memory)
    kernels.clear()


@asynccontextmanager
async def _listening(sandbox: pb.RuntimeSandbox) -> AsyncGenerator[tuple[socket.socket, str]]:
    """Listen beside the agent's socket, in a directory that is closed to user code; yield the socket and its name."""
    directory, name = Path(urlsplit(sandbox.endpoint).path).parent, f"kernels-{secrets.token_hex(4)}"
    path = directory / name
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.setblocking(False)
        try:
            listener.bind(str(path))
            path.chmod(0o666)
        except OSError as error:
            raise SandboxLost(f"{sandbox.sandbox_id} ended", {"detail": str(error)}) from None
        listener.listen(1)
        try:
            yield listener, name
        finally:
            with suppress(OSError):
                path.unlink()


async def _accept(listener: socket.socket) -> socket.socket:
    async with asyncio.timeout(_CONNECT_SECONDS):
        await readable(listener.fileno())
    connection, _ = listener.accept()
    connection.setblocking(False)
    return connection


async def _take(listener: socket.socket, found: list[_Kernel]) -> None:
    """Receive kernels until the agent has sent all of them."""
    with await _accept(listener) as connection:
        while len(found) < _MOST_KERNELS:
            await readable(connection.fileno())
            facts, fds, _, _ = socket.recv_fds(connection, _MOST_BYTES, 1)
            if not fds:
                return
            # Whoever could still write to it would write into other sandboxes.
            if not _is_sealed(fds[0]):
                os.close(fds[0])
                return
            found.append(_Kernel(facts, fds[0]))


def _is_sealed(fd: int) -> bool:
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS == SEALS
    except OSError:
        return False


async def _give(listener: socket.socket, held: list[_Kernel]) -> None:
    with await _accept(listener) as connection:
        for kernel in held:
            socket.send_fds(connection, [kernel.facts], [kernel.memory])
        connection.send(b"{}")
