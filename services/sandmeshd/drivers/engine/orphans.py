"""The processes and control groups that a runtime, such as gVisor's, leaves of a container whose start failed."""

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
"""The parents of containers' control groups, below the root of either version."""

log = structlog.get_logger()


async def remove_with_orphans(engine: Engine, name: str, helpers: Collection[str]) -> None:
    """Remove a container whose start was not finished, and kill the processes that the runtime left.

    An engine that crashed during a start still has the container, but does not know these processes.
    """
    container = await engine.inspect(name)
    await engine.remove(name)
    if container is None:
        return
    count = await asyncio.to_thread(reap_orphans, helpers, str(container["Id"]))
    if count:
        log.warning("processes that the runtime left of a sandbox that could not be started are killed", count=count)


def reap_orphans(helpers: Collection[str], container_id: str) -> int:
    """Kill the processes of a removed container, known by name and its id, and remove its control groups.

    Returns: the number of processes. One that this user may not kill is logged.
    """
    pids = [pid for pid in _pids() if _is_of(pid, helpers, container_id)]
    for pid in pids:
        with suppress(ProcessLookupError):
            _kill(pid, helpers, container_id)
    for group in _groups(container_id):
        # A group that still has processes stays.
        with suppress(OSError):
            group.rmdir()
    return len(pids)


def _kill(pid: int, helpers: Collection[str], container_id: str) -> None:
    fd = os.pidfd_open(pid)
    try:
        if _is_of(pid, helpers, container_id):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            ended = select.poll()
            ended.register(fd, select.POLLIN)
            ended.poll(END_SECONDS * 1000)
    except PermissionError:
        log.warning("a process of a removed container still runs: kill it as root", pid=pid)
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
    for parent in GROUPS:
        for name in (container_id, f"docker-{container_id}.scope"):
            yield from Path("/sys/fs/cgroup").glob(f"{parent}/{name}")
