"""Ends what a runtime leaves of a container whose start failed: gVisor's leaves processes and control groups."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from sandmeshd.drivers.engine.engine import Engine

END_SECONDS = 5.0
GROUPS = ("*/docker", "docker", "system.slice")
"""Where engines have the control groups of containers, below either version's root."""

log = structlog.get_logger()


async def remove_whole(engine: Engine, name: str, helpers: Collection[str]) -> None:
    """Remove a container whose start was not finished, and end what the runtime left around it.

    An engine that died in the middle of a start still has the container, and knows nothing of these processes.
    """
    begun = await engine.look(name)
    await engine.remove(name)
    if begun is None:
        return
    left = await asyncio.to_thread(bury, helpers, str(begun["Id"]))
    if left:
        log.warning("the runtime left processes of a sandbox that could not be started; they are ended", count=left)


def bury(helpers: Collection[str], container_id: str) -> int:
    """End the processes around a container that is gone, known by name and by its id, and remove its control groups.

    Returns: how many processes there were. What this user may not end is logged.
    """
    found = [pid for pid in _pids() if _is_of(pid, helpers, container_id)]
    for pid in found:
        with suppress(ProcessLookupError):
            _end(pid, helpers, container_id)
    for group in _groups(container_id):
        # One that somebody still is in stays.
        with suppress(OSError):
            group.rmdir()
    return len(found)


def _end(pid: int, helpers: Collection[str], container_id: str) -> None:
    fd = os.pidfd_open(pid)
    try:
        if _is_of(pid, helpers, container_id):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            ended = select.poll()
            ended.register(fd, select.POLLIN)
            ended.poll(END_SECONDS * 1000)
    except PermissionError:
        log.warning("a process of a container that is gone runs on: end it as root", pid=pid)
    finally:
        os.close(fd)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_of(pid: int, helpers: Collection[str], container_id: str) -> bool:
    try:
        name, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return Path(name).name in helpers and container_id in arguments


def _groups(container_id: str) -> Iterator[Path]:
    for place in GROUPS:
        for name in (container_id, f"docker-{container_id}.scope"):
            yield from Path("/sys/fs/cgroup").glob(f"{place}/{name}")
