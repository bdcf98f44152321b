"""What a process has once: the portal and the private mesh. A forked child begins with neither.

gRPC's threads do not survive a fork, and a child that uses what they left hangs. So what the portal holds is closed
before a fork and opened again after it, in the parent by itself, in the child when it is first needed. The same is
done for other loops that run in other threads; a loop that forks from inside itself cannot be helped.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sandmesh._client.portal import THREAD as PORTAL_THREAD
from sandmesh._client.portal import Portal
from sandmesh.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from sandmesh._client.private_mesh import PrivateMesh


# How long a fork waits for gRPC's threads to end; a program's own channels keep them.
QUIET_SECONDS = 0.5
# How long one loop may take to close its connection; one that is blocked is forked as it is.
SUSPEND_SECONDS = 3.0
# As gRPC names them, cut to the 15 characters that the kernel keeps.
GRPC_THREADS = frozenset({"event_engine", "lifeguard", "grpc_global_tim", "timer_manager", "grpc_shutdown"})


class Connected(Protocol):
    """What has to be closed while the process forks."""

    loop: asyncio.AbstractEventLoop

    async def suspend(self) -> None:
        """Close what gRPC holds, and keep what is needed to go on."""
        ...

    def resume(self) -> None:
        """Go on; called in the loop."""
        ...


class ProcessState:
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
        """Return the portal, made at its first use."""
        with self._lock:
            if self._portal is None:
                self._portal = Portal()
            return self._portal

    def private_mesh(self, make: Callable[[], PrivateMesh]) -> PrivateMesh:
        """Return the private mesh, a new one where none was made or the last has ended."""
        with self._lock:
            if self._private is None or self._private.ended:
                self._private = make()
            return self._private

    @property
    def has_private_mesh(self) -> bool:
        """Whether a private mesh of this process runs."""
        return self._private is not None and not self._private.ended

    def first_time(self, what: str) -> bool:
        """Return whether this is the first call for a key."""
        known, self._warned = what in self._warned, self._warned | {what}
        return not known

    def is_portal(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether a loop is the portal's."""
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
        """Forget connections whose loop was closed: their channels close with them."""
        for key, connection in list(self.connections.items()):
            if connection.loop.is_closed():
                del self.connections[key]

    def before_fork(self) -> None:
        """Close what gRPC holds in every loop that runs in another thread than the fork."""
        if "grpc" not in sys.modules or threading.current_thread().name == PORTAL_THREAD:
            return
        self.forget_closed_loops()
        own = _running_loop()
        held: list[Connected] = [opened for opened in self.connections.values() if opened.loop is not own]
        for connection in held:
            if connection.loop.is_running():
                with suppress(TimeoutError):
                    asyncio.run_coroutine_threadsafe(connection.suspend(), connection.loop).result(SUSPEND_SECONDS)
                    self._suspended.append(connection)
        if len(self._suspended) == len(self.connections):
            _wait_for_grpc()

    def after_fork(self) -> None:
        """Go on in the parent."""
        held, self._suspended = self._suspended, []
        for connection in held:
            connection.loop.call_soon_threadsafe(connection.resume)

    def at_exit(self) -> None:
        """Close what the portal holds: gRPC's threads do not take it well when the interpreter ends under them."""
        self.forget_closed_loops()
        for connection in [opened for opened in self.connections.values() if self.is_portal(opened.loop)]:
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(connection.suspend(), connection.loop).result(SUSPEND_SECONDS)
        if self.connections:
            _wait_for_grpc()

    def child(self) -> ProcessState:
        """Return the initial state of a forked child."""
        if self._private is not None:
            self._private.disown()
        alive = len(self._suspended) < len(self.connections)
        return ProcessState((self, self._inherited), poisoned=alive or self._poisoned)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wait_for_grpc() -> None:
    # gRPC ends its threads some time after its last object went. While one of them ends, its own fork handlers can
    # deadlock with this process's interpreter lock, and the child has locks without holders.
    deadline = time.monotonic() + QUIET_SECONDS
    collected = False
    while _grpc_threads() and time.monotonic() < deadline:
        if not collected and time.monotonic() > deadline - QUIET_SECONDS / 2:
            gc.collect()
            collected = True
        time.sleep(0.0005)


def _grpc_threads() -> bool:
    if any("_poll_wrapper" in thread.name for thread in threading.enumerate()):
        return True
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it ended
            if path.read_text().strip() in GRPC_THREADS:
                return True
    return False


class _Holder:
    """Holds the one that is in force, because a fork puts another in its place."""

    def __init__(self) -> None:
        self.process = ProcessState()
        self._registered = False

    def register(self) -> None:
        """Take part in forks, from the first use on.

        So connections are closed before the locks of imports and validators are taken, which their loops may need.
        """
        if not self._registered:
            self._registered = True
            os.register_at_fork(
                before=self.before_fork,
                after_in_parent=self.after_fork_in_parent,
                after_in_child=self.after_fork_in_child,
            )

    def at_exit(self) -> None:
        self.process.at_exit()

    def before_fork(self) -> None:
        self.process.before_fork()

    def after_fork_in_parent(self) -> None:
        self.process.after_fork()

    def after_fork_in_child(self) -> None:
        self.process = self.process.child()


_holder = _Holder()
atexit.register(_holder.at_exit)


def process() -> ProcessState:
    """Return this process's state."""
    _holder.register()
    return _holder.process
