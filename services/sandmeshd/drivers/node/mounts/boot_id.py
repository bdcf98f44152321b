"""A boot_id of a container's own, over that of the machine: programs tell starts of a machine apart by it (random(4)).

Engines mount nothing below /proc, so that it is mounted from outside, as root.
"""

from __future__ import annotations

import ctypes
import os
import threading
import uuid
from pathlib import Path
from typing import Final

_PLACE: Final = b"/proc/sys/kernel/random/boot_id"
_CLONE_FS: Final = 0x00000200
_CLONE_NEWNS: Final = 0x00020000
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_OPEN_TREE_CLONE: Final = 1
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_AT_FDCWD: Final = -100

_libc = ctypes.CDLL(None, use_errno=True)


def mount_boot_id(pid: int, container_id: str, folder: Path) -> None:
    """Mount one for all processes of a container; `folder` is the sandbox's, and stays as long as it.

    Raises:
        OSError: The process is not of that container any more, or the kernel refuses it.
    """
    file = folder / "boot_id"
    file.write_text(f"{uuid.uuid4()}\n")
    file.chmod(0o444)
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # What was opened is the container's as long as its process is there now: another may have got the number.
        if container_id not in Path(f"/proc/{pid}/cgroup").read_text():
            raise ProcessLookupError(f"process {pid} is not of container {container_id}")
        tree = _checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(file), _OPEN_TREE_CLONE | os.O_CLOEXEC))
        try:
            _within(namespace, tree)
        finally:
            os.close(tree)
    finally:
        os.close(namespace)


def _within(namespace: int, tree: int) -> None:
    """Mount a tree in another mount namespace, which a thread enters that ends with this."""
    failures: list[OSError] = []

    def mount() -> None:
        try:
            # Only a process that shares its root and directory with no other may enter.
            _checked(_libc.unshare(_CLONE_FS))
            _checked(_libc.setns(namespace, _CLONE_NEWNS))
            _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, _PLACE, _MOVE_MOUNT_F_EMPTY_PATH))
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=mount)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
