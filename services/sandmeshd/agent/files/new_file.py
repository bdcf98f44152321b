"""New files that are there whole or not at all.

A file grows without a name (O_TMPFILE) and gets one when it is complete: whoever reads sees the old file or the new,
and what is cut off leaves nothing. Where a file system has no such files, a name beginning with .sandmesh- stands in.
https://man7.org/linux/man-pages/man2/open.2.html
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from sandmeshd.agent.files.confinement import Workspace

_NO_TMPFILE: Final = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
_NAMED: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMELESS: Final = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC


class Landing:
    """A file that is being written beside the place it is for."""

    def __init__(self, directory: int, name: str, *, make_nameless: bool = True) -> None:
        """Make the file.

        Raises:
            OSError: The directory takes no file.
        """
        self._directory = directory
        self._name = name
        self._temporary = ""
        self.fd = self._nameless() if make_nameless else self._named()

    def _nameless(self) -> int:
        try:
            return os.open(".", _NAMELESS, 0o666, dir_fd=self._directory)
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
        return self._named()

    def _named(self) -> int:
        self._temporary = _temporary()
        return os.open(self._temporary, _NAMED, 0o666, dir_fd=self._directory)

    def commit(self, *, replace: bool, mode: int | None) -> os.stat_result:
        """Give the file its name and, where stated, a mode.

        Raises:
            OSError: EEXIST where the name is in use and `replace` is false.
        """
        if mode is not None:
            os.fchmod(self.fd, mode & 0o7777)
        if not self._temporary and not replace:
            self._link(self._name)
            return os.fstat(self.fd)
        if not self._temporary:
            temporary = _temporary()
            self._link(temporary)
            self._temporary = temporary
        if replace:
            os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            self._temporary = ""
        else:
            os.link(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        return os.fstat(self.fd)

    def _link(self, name: str) -> None:
        os.link(f"/proc/self/fd/{self.fd}", name, dst_dir_fd=self._directory, follow_symlinks=True)

    def close(self) -> None:
        """Let go of it; without a commit nothing of it stays."""
        os.close(self.fd)
        if self._temporary:
            with suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._directory)


def _temporary() -> str:
    return f".sandmesh-{secrets.token_hex(8)}"


@contextmanager
def landing(workspace: Workspace, path: str, *, make_parents: bool) -> Generator[tuple[Landing, int | None]]:
    """Give a file on its way to a path, and the mode of the one that is there now.

    Raises:
        OSError: EISDIR where a directory is there, EACCES where a file is read-only, ENXIO where it is a device.
    """
    if not make_parents:
        with workspace.parent(path):
            pass
    with workspace.destination(path) as (directory, name):
        mode = _mode_to_keep(directory, name)
        made = Landing(directory, name)
        try:
            yield made, mode
        finally:
            made.close()


def _mode_to_keep(directory: int, name: str) -> int | None:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(mode):
        raise OSError(errno.ENXIO, "it is no regular file but a FIFO, socket or device", name)
    if not os.access(name, os.W_OK, dir_fd=directory, effective_ids=True):
        raise PermissionError(errno.EACCES, "it is read-only", name)
    return stat.S_IMODE(mode)
