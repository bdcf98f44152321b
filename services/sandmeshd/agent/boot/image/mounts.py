"""The system calls that mount by descriptor: see open_tree(2), move_mount(2), mount_setattr(2) and pivot_root(2).

A mount that such a descriptor holds is in no one's view. So a root with hostile symbolic links is entered first, and
what it is to have is attached then: whatever a link points to, it is within that root.
"""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False  # as in syscalls
if TYPE_CHECKING:
    from typing import Final

MOUNT_ATTR_RDONLY: Final = 0x1
MOUNT_ATTR_NOSUID: Final = 0x2
MOUNT_ATTR_NODEV: Final = 0x4
_MOUNT_ATTR_IDMAP: Final = 0x100000
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_OPENAT2: Final = 437
_MOUNT_SETATTR: Final = 442
_RESOLVE_IN_ROOT: Final = 0x10
_OPEN_HOW: Final = struct.Struct("=QQQ")
"""struct open_how: flags, mode, how to resolve."""
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}.get(os.uname().machine, 41)
_OPEN_TREE_CLONE: Final = 1
_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_MNT_DETACH: Final = 2
_ATTRIBUTES: Final = struct.Struct("=QQQQ")
"""struct mount_attr: what is set, what is cleared, the propagation, and the user namespace of an id-mapped mount."""

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(returned: int, what: str) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return returned


def detached(path: str, *, with_others: bool = False, root: str = "") -> int:
    """Return a descriptor of a copy of the mount at a path, `with_others` with those below it.

    Links on the path are followed as in `root`, if that is given: they do not lead out of it.

    Raises:
        OSError: The kernel does not allow it, or the path is not there.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if with_others else 0)
    if not root:
        return _checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, path.encode(), flags), f"open_tree of {path}")
    place = _opened_below(root, path)
    try:
        returned = _libc.syscall(_OPEN_TREE, place, b"", flags | _AT_EMPTY_PATH)
        return _checked(returned, f"open_tree of {path} in {root}")
    finally:
        os.close(place)


def _opened_below(root: str, path: str) -> int:
    """Return a descriptor of a path as it is in a root: see openat2(2)."""
    top = os.open(root, os.O_PATH | os.O_CLOEXEC)
    try:
        how = _OPEN_HOW.pack(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
        return _checked(_libc.syscall(_OPENAT2, top, path.encode(), how, len(how)), f"openat2 of {path} in {root}")
    finally:
        os.close(top)


def map_ids(mount: int, user_namespace: int) -> None:
    """Make the owners of a detached mount's files those that a user namespace's map names.

    Raises:
        OSError: The file system cannot, or this process has no right over it.
    """
    _set(mount, _MOUNT_ATTR_IDMAP, user_namespace, "mount_setattr of owners")


def restrict(mount: int, attributes: int) -> None:
    """Add attributes to a detached mount."""
    _set(mount, attributes, 0, "mount_setattr")


def _set(mount: int, attributes: int, user_namespace: int, what: str) -> None:
    data = _ATTRIBUTES.pack(attributes, 0, 0, user_namespace)
    _checked(_libc.syscall(_MOUNT_SETATTR, mount, b"", _AT_EMPTY_PATH, data, len(data)), what)


def attach(mount: int, path: str) -> None:
    """Attach a detached mount at a path, and close its descriptor.

    Raises:
        OSError: The kernel does not allow it, or the path is not there.
    """
    returned = _libc.syscall(_MOVE_MOUNT, mount, b"", _AT_FDCWD, path.encode(), _MOVE_MOUNT_F_EMPTY_PATH)
    _checked(returned, f"move_mount to {path}")
    os.close(mount)


def detach(path: str) -> None:
    """Detach the mount at a path from it; copies of it stay."""
    _checked(_libc.umount2(path.encode(), _MNT_DETACH), f"umount2 of {path}")


def enter_root(path: str) -> None:
    """Make a mount the root of this mount namespace, and detach the old one."""
    os.chdir(path)
    _checked(_libc.syscall(_PIVOT_ROOT, b".", b"."), "pivot_root")
    detach(".")
    os.chdir("/")
