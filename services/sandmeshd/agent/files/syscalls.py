"""System calls on files that Python's os module lacks: openat2, renameat2 and statx."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from functools import cache
from typing import Final

# Numbers and layouts are those of linux/openat2.h, linux/fs.h and linux/stat.h; 437 is openat2's on every architecture.
_SYS_OPENAT2: Final = 437
_AT_FDCWD: Final = -100
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_RENAME_NOREPLACE: Final = 1
_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_STATX_SIZE: Final = 256
_STATX_BTIME_OFFSET: Final = 80

_ATTEMPTS: Final = 64


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(directory: int, path: str, flags: int, *, follow: bool = True) -> int:
    """Open a path so that the kernel itself refuses whatever leads out of the directory.

    `follow=False` refuses every symbolic link on the way, also those that stay inside.

    Raises:
        OSError: As open(2) does; EXDEV where the path leads out, by `..` or a link.
    """
    if not has_openat2():
        return walk_beneath(directory, path, flags)
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | (0 if follow else _RESOLVE_NO_SYMLINKS)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_ATTEMPTS):
        fd = _openat2(directory, os.fsencode(path), how)
        # EAGAIN: something was renamed while the kernel looked at `..`, so it could not tell. It wants another try.
        if fd >= 0 or ctypes.get_errno() not in {errno.EAGAIN, errno.EINTR}:
            return _checked(fd, path)
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)


@cache
def has_openat2() -> bool:
    """Return whether the kernel, and this process's seccomp filter, support openat2."""
    how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, 0)
    fd = _openat2(_AT_FDCWD, b"/", how)
    if fd >= 0:
        os.close(fd)
    return fd >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}


def walk_beneath(directory: int, path: str, flags: int) -> int:
    """Resolve a path as `open_beneath` does where the kernel cannot: name by name, through no link at all.

    Raises:
        OSError: As open(2) does; EXDEV for `..` and for a link, which may lead out.
    """
    names = [name for name in path.split("/") if name not in {"", "."}]
    if ".." in names:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    fd = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        for name in names[:-1]:
            inner = _step(fd, name, os.O_PATH | os.O_DIRECTORY)
            os.close(fd)
            fd = inner
        return _step(fd, names[-1] if names else ".", flags)
    finally:
        os.close(fd)


def _step(fd: int, name: str, flags: int) -> int:
    # A look first tells a link from what is not a directory; whatever is swapped after it, O_NOFOLLOW refuses.
    linked = OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
        raise linked
    try:
        found = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise linked from None
        raise
    if stat.S_ISLNK(os.fstat(found).st_mode):
        # O_PATH opens a link itself.
        os.close(found)
        raise linked
    return found


def _openat2(directory: int, path: bytes, how: _OpenHow) -> int:
    number, size = ctypes.c_long(_SYS_OPENAT2), ctypes.c_size_t(ctypes.sizeof(how))
    fd: int = _libc.syscall(number, ctypes.c_int(directory), ctypes.c_char_p(path), ctypes.byref(how), size)
    return fd


def rename_without_replacing(source: tuple[int, str], destination: tuple[int, str]) -> None:
    """Rename a name in one directory to a name in another; both are pairs of directory descriptor and name.

    Raises:
        OSError: As rename(2) does; EEXIST where the destination exists.
    """
    names = os.fsencode(source[1]), os.fsencode(destination[1])
    status = _libc.renameat2(source[0], names[0], destination[0], names[1], ctypes.c_uint(_RENAME_NOREPLACE))
    _checked(status, source[1])


def birth_time(fd: int) -> float | None:
    """Return when an open file was created, in seconds since 1970; None where its file system does not record that."""
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    status = _libc.statx(fd, b"", _AT_EMPTY_PATH, ctypes.c_uint(_STATX_BTIME), buffer)
    known = int.from_bytes(buffer.raw[:4], "little") & _STATX_BTIME
    if status < 0 or not known:
        return None
    at = _STATX_BTIME_OFFSET
    seconds = int.from_bytes(buffer.raw[at : at + 8], "little", signed=True)
    return seconds + int.from_bytes(buffer.raw[at + 8 : at + 12], "little") / 1e9


def _checked(status: int, path: str) -> int:
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return status
