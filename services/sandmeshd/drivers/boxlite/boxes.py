"""BoxLite's runtime as the driver uses it: one home, named boxes, and errors that say what to do."""

from __future__ import annotations

import asyncio
import hashlib
import os
import select
import signal
import time
from base64 import b32encode
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boxlite
import structlog

from sandmesh.errors import RuntimeUnavailable, SandboxStartFailed

AGENT_PORT: Final = 8571
BORN: Final = "/run/sandmesh-born"
LOOPBACK: Final = "127.0.0.1"
NOWHERE: Final = "192.0.2.1"
"""An unassigned address (RFC 5737). An empty list of what is allowed would filter nothing."""

KEPT: Final = ("KILL", "SETGID", "SETUID", "SETPCAP", "NET_ADMIN", "CHOWN")
"""The capabilities that the agent begins with, and drops before it reads anything but to run user code."""

SHIM: Final = "boxlite-shim"
END_SECONDS: Final = 10.0
FREE_SECONDS: Final = 2.0

# It ships no types.
LIBRARY: Any = boxlite

log = structlog.get_logger()


@dataclass(frozen=True)
class BoxPlan:
    """A box as it is to be."""

    name: str
    layout: Path
    cpus: int
    mebibytes: int
    born: Path
    """The directory with its agent's files, which the box sees read-only."""
    command: Sequence[str]
    detached: bool


@dataclass(frozen=True)
class Box:
    """What BoxLite knows of a box."""

    name: str
    box_id: str
    status: str
    is_running: bool
    port: int
    """Where this machine reaches its agent; 0: nowhere."""


def box_name(mesh_id: str, sandbox_id: str) -> str:
    """Return the name of a sandbox's box."""
    return f"{mesh_prefix(mesh_id)}{_hashed(sandbox_id, 26)}"


def mesh_prefix(mesh_id: str) -> str:
    """Return what the names of a mesh's boxes begin with."""
    return f"sm-{_hashed(mesh_id, 8)}-"


def _hashed(text: str, length: int) -> str:
    return b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()[:length]


class Boxes:
    """The boxes of one home."""

    def __init__(self, runtime: Any, home: Path) -> None:
        self._runtime = runtime
        self._home = home

    async def create(self, plan: BoxPlan) -> None:
        """Create a box, which is started by `start`.

        Raises:
            SandboxStartFailed: BoxLite refuses it.
        """
        with _refusals(f"BoxLite refuses the box {plan.name}"):
            await self._runtime.create(options_of(plan), name=plan.name)

    async def start(self, name: str) -> Box:
        """Start a box, and return where its agent is reached.

        Raises:
            SandboxStartFailed: It does not start.
        """
        with _refusals("its virtual machine did not start"):
            box = await self._runtime.get(name)
            if box is not None:
                await box.start()
            info = await self._runtime.get_info(name)
        if info is None:
            detail = "it was deleted meanwhile"
            raise SandboxStartFailed(f"a sandbox could not be started: {detail}", {"detail": detail})
        return _box(info)

    async def list(self, prefix: str) -> list[Box]:
        """Return the boxes whose names begin with a prefix."""
        with _refusals("BoxLite does not list its boxes"):
            found = await self._runtime.list_info()
        return [_box(info) for info in found if str(info.name or "").startswith(prefix)]

    async def remove(self, name: str) -> None:
        """End a box with its process, which BoxLite leaves after a start that failed, and remove it, if it exists."""
        with suppress(LIBRARY.NotFoundError), _refusals("its box could not be removed"):
            info = await self._runtime.get_info(name)
            if info is None:
                return
            await self._runtime.remove(name, force=True)
            await asyncio.to_thread(_end, [pid for pid, box in shims(self._home) if box == str(info.id)])

    async def sweep(self) -> int:
        """End processes of boxes of this home that BoxLite does not know, or that do not run; return how many."""
        with _refusals("BoxLite does not list its boxes"):
            running = {str(info.id) for info in await self._runtime.list_info() if info.state.running}
        left = [(pid, box) for pid, box in shims(self._home) if box not in running]
        for pid, box in left:
            log.warning("a process of a box that does not run is ended", pid=pid, box=box)
        await asyncio.to_thread(_end, [pid for pid, _ in left])
        return len(left)

    def close(self) -> None:
        """Drop the runtime: its home is free once nothing refers to it."""
        del self._runtime


def shims(home: Path) -> list[tuple[int, str]]:
    """Return the processes that run boxes of a home, each with the box's id."""
    boxes, found = home.resolve() / "boxes", list[tuple[int, str]]()
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError, ValueError):
            program = Path(str((process / "exe").readlink()).removesuffix(" (deleted)"))
            if program.name == SHIM:
                found.append((int(process.name), program.relative_to(boxes).parts[0]))
    return found


def _end(pids: Sequence[int]) -> None:
    """End processes, and return when they have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                select.select([descriptor], [], [], END_SECONDS)
            finally:
                os.close(descriptor)


def options_of(plan: BoxPlan) -> Any:
    """Return a box as BoxLite's library takes it."""
    outbound = LIBRARY.OutboundNetworkSpec(mode="enabled", allow_net=[NOWHERE])
    capabilities = LIBRARY.ContainerCapabilities(add=list(KEPT), drop=["ALL"])
    advanced = LIBRARY.AdvancedBoxOptions(security=LIBRARY.SecurityOptions.standard(), capabilities=capabilities)
    return LIBRARY.BoxOptions(
        rootfs_path=str(plan.layout),
        cpus=plan.cpus,
        memory_mib=plan.mebibytes,
        volumes=[(str(plan.born), BORN, True)],
        # BoxLite chooses the port; without an address it would listen on all of them.
        ports=[(0, AGENT_PORT, "tcp", LOOPBACK)],
        network=LIBRARY.NetworkSpec(outbound=outbound),
        auto_delete=0,
        auto_stop=0,
        auto_resume=False,
        detach=plan.detached,
        cmd=list(plan.command),
        user="0",
        advanced=advanced,
    )


def _box(info: Any) -> Box:
    published: list[Any] = list(info.network.published_ports) if info.network is not None else []
    # One that is published anywhere else is not used.
    ports = [int(one.host_port) for one in published if one.guest_port == AGENT_PORT and one.host_ip == LOOPBACK]
    state = info.state
    return Box(str(info.name), str(info.id), str(state.status), bool(state.running), ports[0] if ports else 0)


@contextmanager
def _refusals(what: str) -> Generator[None]:
    try:
        yield
    except LIBRARY.NotFoundError:
        raise
    except LIBRARY.BoxliteError as error:
        detail = f"{what}: {error}"
        raise SandboxStartFailed(f"a sandbox could not be started: {detail}", {"detail": detail}) from None


@asynccontextmanager
async def open_boxes(home: Path) -> AsyncGenerator[Boxes]:
    """Open BoxLite's runtime on a home; the boxes in it that are detached go on when it closes.

    Raises:
        RuntimeUnavailable: Another driver uses that home, or BoxLite does not work here.
    """
    try:
        runtime = await _opened(home)
    except LIBRARY.BoxliteError as error:
        fix = f"end the other driver, or set SANDMESH_BOXLITE_HOME: one driver at a time uses {home}"
        raise RuntimeUnavailable(f"BoxLite cannot be used: {error}; {fix}", {"fix": fix}) from None
    boxes = Boxes(runtime, home)
    try:
        yield boxes
    finally:
        boxes.close()


async def _opened(home: Path) -> Any:
    # A runtime that was let go frees its home a moment later, when its threads have ended.
    ends = time.monotonic() + FREE_SECONDS
    while True:
        try:
            return await asyncio.to_thread(_open, home)
        except LIBRARY.BoxliteError:
            if time.monotonic() >= ends:
                raise
        await asyncio.sleep(0.1)


def _open(home: Path) -> Any:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return LIBRARY.Boxlite(LIBRARY.Options(home_dir=str(home)))
