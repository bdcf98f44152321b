"""What a fork of a running kernel cannot have: the threads that refuse it, and the rest that is only named."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_MOST = 64
"""How many are named of what is not copied."""
_MOST_CHARACTERS = 160
_DEVICES = ("/dev/nvidia", "/dev/dri/", "/dev/kfd")
"""Descriptors of these belong to GPU contexts."""


def descriptors() -> list[int]:
    """Return the open descriptors of this process, but the one with which they are read."""
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return [fd for name in os.listdir(listing) if (fd := int(name)) != listing]  # noqa: PTH208 - as below
    finally:
        os.close(listing)


def find_obstacle() -> str:
    """Return why this process cannot be forked: a thread of Python's or a GPU context; empty where nothing is found."""
    threading: Any = sys.modules.get("threading")
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if names:
        return describe_threads(names)
    for fd in descriptors():
        if target_of(fd).startswith(_DEVICES):
            return f"it has a GPU context ({target_of(fd)}), which cannot be copied"
    return ""


def native_threads() -> list[str]:
    """Return the names of the threads beside the first one."""
    names: list[str] = []
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - pathlib is a slow import
        if int(thread) != os.getpid():
            with suppress(OSError), open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                names.append(file.read().strip())
    return names


def describe_threads(names: list[str]) -> str:
    """Describe which threads keep a process from being forked."""
    shown = ", ".join(name[:_MOST_CHARACTERS] for name in names[:8]) + (", ..." if len(names) > 8 else "")
    return f"it has {len(names)} more thread(s), which a fork would lack: {shown}. End them, and fork again"


def describe(own: set[int], loop: Any) -> list[str]:
    """Name what the forks lack of the process that forked this one; `own` are descriptors that are replaced."""
    found = [*_tasks(loop), *_children(os.getppid()), *_mappings()]
    own = own | _descriptors_of(loop)
    for fd in descriptors():
        if fd > 2 and fd not in own:
            with suppress(OSError):
                found += _describe_descriptor(fd)
    named = [one[:_MOST_CHARACTERS] for one in found[:_MOST]]
    return [*named, f"{len(found) - _MOST} more"] if len(found) > _MOST else named


def tasks_of(loop: Any) -> list[Any]:
    """Return the asyncio tasks that wait in a loop."""
    return [] if loop is None or loop.is_closed() else list(asyncio.all_tasks(loop))


def _tasks(loop: Any) -> list[str]:
    return [f"asyncio task {task.get_name()}" for task in tasks_of(loop)]


def _descriptors_of(loop: Any) -> set[int]:
    ends = (getattr(loop, name, None) for name in ("_ssock", "_csock"))
    return {end.fileno() for end in ends if end is not None}


def _children(parent: int) -> Iterator[str]:
    with suppress(OSError), open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:  # noqa: PTH123
        for pid in file.read().split():
            if int(pid) != os.getpid():
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:  # noqa: PTH123
                    yield f"process {pid} ({name.read().strip()})"


def _mappings() -> list[str]:
    """Name the memory that the process shares, which forks share with it."""
    found: dict[str, None] = {}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        for line in file:
            _, access, _, _, _, *path = line.split(maxsplit=5)
            if access[1] == "w" and access[3] == "s":
                found[f"shared memory {path[0].strip() if path else 'without a name'} (the forks share it)"] = None
    return list(found)


def _describe_descriptor(fd: int) -> list[str]:
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        return [f"{_describe_socket(fd)}, descriptor {fd}"]
    if stat.S_ISFIFO(mode):
        return [f"pipe, descriptor {fd}"]
    known = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode)
    target = target_of(fd)
    if known or "eventpoll" in target or "eventfd" in target:
        return []
    return [f"{target}, descriptor {fd}"]


def _describe_socket(fd: int) -> str:
    with socket.socket(fileno=os.dup(fd)) as found:
        ends: list[str] = []
        for end in (found.getsockname, found.getpeername):
            with suppress(OSError):
                ends.append(_address(end()))
        kind = found.family.name.removeprefix("AF_").lower()
        return f"{kind} socket {' to '.join(filter(None, ends))}".strip()


def _address(address: Any) -> str:
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)


def target_of(fd: int) -> str:
    """Return what the kernel calls a descriptor's file; empty where it is not open."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - pathlib is a slow import
    except OSError:
        return ""


def flags_of(fd: int) -> int:
    """Return the flags with which a descriptor was opened, as the kernel has them."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:  # noqa: PTH123 - pathlib is a slow import
        lines: Iterator[list[str]] = (line.split() for line in file)
        return next(int(line[1], 8) for line in lines if line[0] == "flags:")
