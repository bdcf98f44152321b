"""What a process has once: the portal and the private mesh. A forked child begins with neither.

gRPC's threads do not survive a fork, and a child that uses what they left hangs. So what the portal holds is closed
before a fork and opened again after it, in the parent by itself, in the child when it is first needed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from sandmesh._portal import Portal
from sandmesh.errors import RuntimeUnavailable

if TYPE_CHECKING:
    import asyncio

    from sandmesh._private import PrivateMesh


class Connected(Protocol):
    """What has to be closed while the process forks."""

    loop: asyncio.AbstractEventLoop

    async def suspend(self) -> None:
        """Close what gRPC holds, and keep what is needed to go on."""
        ...

    def resume(self) -> None:
        """Go on; called in the loop."""
        ...


class Process:
    """The state of one process. `inherited` is what a forked child got and must neither use nor destroy."""

    def __init__(self, inherited: object = None, *, poisoned: bool = False) -> None:
        self.pid = os.getpid()
        self.connections: dict[tuple[object, ...], Any] = {}
        self._inherited = inherited
        self._poisoned = poisoned
        self._lock = threading.Lock()
        self._portal: Portal | None = None
        self._private: PrivateMesh | None = None
        self._warned: set[str] = set()
        self._suspended: list[Connected] = []

    def portal(self) -> Portal:
        """Give the portal, made at its first use."""
        with self._lock:
            if self._portal is None:
                self._portal = Portal()
            return self._portal

    def private_mesh(self, make: Callable[[], PrivateMesh]) -> PrivateMesh:
        """Give the private mesh, a new one where none was made or the last has ended."""
        with self._lock:
            if self._private is None or self._private.ended:
                self._private = make()
            return self._private

    def first_time(self, what: str) -> bool:
        """Say whether this is asked for the first time."""
        known, self._warned = what in self._warned, self._warned | {what}
        return not known

    def is_portal(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Say whether a loop is the portal's."""
        return self._portal is not None and self._portal.loop is loop

    def check_fork(self) -> None:
        """Refuse gRPC in a process in which it would hang.

        Raises:
            RuntimeUnavailable: The process was forked while async sandboxes were open.
        """
        if self._poisoned:
            fix = "close async sandboxes before the fork, or start processes by spawn or forkserver"
            message = f"this process was forked while async sandboxes were open, where gRPC cannot work: {fix}"
            raise RuntimeUnavailable(message, {"fix": fix})

    def forget_closed_loops(self) -> None:
        """Let connections go whose loop ended under them: their channels close with them."""
        for key, connection in list(self.connections.items()):
            if connection.loop.is_closed():
                del self.connections[key]

    def before_fork(self) -> None:
        """Close what the portal's loop holds."""
        self.forget_closed_loops()
        if self._portal is None or threading.current_thread().name == "sandmesh-portal":
            return
        held: list[Connected] = [one for one in self.connections.values() if self.is_portal(one.loop)]
        for connection in held:
            self._run(connection.suspend())
        self._suspended = held

    def after_fork(self) -> None:
        """Go on in the parent."""
        held, self._suspended = self._suspended, []
        for connection in held:
            connection.loop.call_soon_threadsafe(connection.resume)

    def child(self) -> Process:
        """Give what a forked child begins with."""
        if self._private is not None:
            self._private.disown()
        alive = any(not self.is_portal(one.loop) for one in self.connections.values())
        return Process((self, self._inherited), poisoned=alive or self._poisoned)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        if self._portal is not None:
            self._portal.run(work)


class _Holder:
    """Holds the one that is in force, because a fork puts another in its place."""

    def __init__(self) -> None:
        self.process = Process()

    def before_fork(self) -> None:
        self.process.before_fork()

    def after_fork_in_parent(self) -> None:
        self.process.after_fork()

    def after_fork_in_child(self) -> None:
        self.process = self.process.child()


_holder = _Holder()
os.register_at_fork(
    before=_holder.before_fork,
    after_in_parent=_holder.after_fork_in_parent,
    after_in_child=_holder.after_fork_in_child,
)


def process() -> Process:
    """Give this process's state."""
    return _holder.process
