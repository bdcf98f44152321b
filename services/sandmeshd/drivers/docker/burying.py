"""Ends what a runtime leaves running of a container whose start failed: gVisor's does so."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import structlog

log = structlog.get_logger()


def bury(helpers: Collection[str], container_id: str) -> int:
    """End the runtime's own processes of a container that is gone; they are known by name and by its id.

    Returns: how many there were. What this user may not end is logged.
    """
    found = list(_helpers(helpers, container_id))
    for pid in found:
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            try:
                if _is_of(pid, helpers, container_id):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            except PermissionError:
                log.warning("a process of a container that is gone runs on: end it as root", pid=pid)
            finally:
                os.close(fd)
    return len(found)


def _helpers(helpers: Collection[str], container_id: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_of(int(entry.name), helpers, container_id):
            yield int(entry.name)


def _is_of(pid: int, helpers: Collection[str], container_id: str) -> bool:
    try:
        name, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return Path(name).name in helpers and container_id in arguments
