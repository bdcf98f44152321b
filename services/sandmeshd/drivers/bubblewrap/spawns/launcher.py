"""Starts the zygotes of sandboxes whose root is made from this machine, each by bwrap."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, closing

from sandmeshd.drivers.bubblewrap.arguments import (
    FOLDERS_OF_ALL,
    SOCKETS_OF_ALL,
    Mounts,
    SharedView,
    ZygoteDescriptors,
    memory_mounts,
    zygote_arguments,
)
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.starts.exec_start import launch, memory_file
from sandmeshd.drivers.bubblewrap.starts.zygotes import RunningZygote, SpawnFailed, ZygoteKey
from sandmeshd.drivers.bubblewrap.uid_map import UidMap
from sandmeshd.drivers.node.agent_config import ENVIRONMENT, HOME

SEND_BYTES = 1 << 20


class BwrapLauncher:
    """Starts them for one driver: see `ZygoteLauncher`."""

    def __init__(self, settings: BubblewrapSettings, view: SharedView, agent_filter: bytes) -> None:
        self._settings = settings
        self._view = view
        self._filter = agent_filter

    async def start(self, mounts: Mounts, key: ZygoteKey, output: int) -> RunningZygote:
        """Start a zygote: see `ZygoteLauncher`."""
        with closing(UidMap(self._settings, wanted=bool(self._settings.uid_range))) as uid_map:
            zygote = self._launch(mounts, output, uid_map)
            async with closed_on_error(zygote, self._settings.start_timeout):
                await uid_map.write()
                await zygote.configure(self._config(mounts, key), output)
        return zygote

    def _launch(self, mounts: Mounts, output: int, uid_map: UidMap) -> RunningZygote:
        with ExitStack() as stack, memory_file(self._filter) as seccomp:
            ours, theirs = control_sockets(stack)
            with theirs:
                descriptors = ZygoteDescriptors(theirs.fileno(), seccomp, uid_map.theirs())
                command = zygote_arguments(self._view, mounts, descriptors, self._settings.ends_with_driver)
                zygote = RunningZygote(ours, launch(command, output, descriptors.all()))
            stack.pop_all()
        uid_map.close_theirs()
        return zygote

    def _config(self, mounts: Mounts, key: ZygoteKey) -> dict[str, object]:
        seeds = [(f"{ENVIRONMENT}/home/{name}", f"{HOME}/{name}") for name in mounts.home_files]
        hidden = [FOLDERS_OF_ALL, SOCKETS_OF_ALL]
        memory, size = memory_mounts(mounts.scratch), self._settings.scratch_bytes
        view = {"memory": memory, "size": size, "seeds": seeds, "hidden": hidden}
        return {"view": view, "python": f"{ENVIRONMENT}/bin/python", "environment": dict(key.variables)}


def control_sockets(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Return the socket to a new zygote, which the stack closes, and the zygote's end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stack.enter_context(ours)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
    ours.setblocking(False)
    return ours, theirs


@asynccontextmanager
async def closed_on_error(zygote: RunningZygote, seconds: float) -> AsyncGenerator[None]:
    """Release a zygote if the block fails, is cancelled or takes longer than so many seconds.

    Raises:
        SpawnFailed: It took longer.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        await zygote.close()
        raise SpawnFailed(f"no zygote was ready within {seconds:g} s") from None
    except BaseException:
        await zygote.close()
        raise
