"""Files that appear whole or not at all.

A file grows without a name (O_TMPFILE) and gets one when it is complete: readers see the old file or the new one, and
an interrupted write leaves nothing. Where a file system has no such files, a name beginning with .sandmesh- stands in.
https://man7.org/linux/man-pages/man2/open.2.html
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_NOT_SUPPORTED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
OPENED: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""How files are opened: not through a link, and not for other programs. 0 where the system has no such flags."""
OPENED_DIRECTORY: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | OPENED
"""How directories are."""
_NAMED = os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPENED
# Only Linux has them.
_TMPFILE: int = getattr(os, "O_TMPFILE", 0)


class AtomicFile:
    """A file that is being written for a name in a directory."""

    def __init__(self, directory: int, name: str, *, mode: int = 0o666, anonymous: bool = True) -> None:
        """Create the file; `mode` holds until it is committed, and from then on where `commit` gets none.

        Raises:
            OSError: The directory takes no file.
        """
        self._directory = directory
        self._name = name
        self._temporary = ""
        self.fd = self._open_anonymous(mode) if anonymous and _TMPFILE else self._open_named(mode)

    def _open_anonymous(self, mode: int) -> int:
        try:
            return os.open(".", os.O_WRONLY | _TMPFILE | os.O_CLOEXEC, mode, dir_fd=self._directory)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        return self._open_named(mode)

    def _open_named(self, mode: int) -> int:
        self._temporary = _temporary_name()
        return os.open(self._temporary, _NAMED, mode, dir_fd=self._directory)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        written = os.write(self.fd, data)
        while written < len(data):
            written += os.write(self.fd, data[written:])

    def commit(self, *, replace: bool, mode: int | None) -> os.stat_result:
        """Link the file under its name, with `mode` unless that is None.

        Raises:
            OSError: EEXIST where the name is in use and `replace` is false.
        """
        if mode is not None:
            os.fchmod(self.fd, mode & 0o7777)
        if not self._temporary and not replace:
            self._link(self._name)
            return os.fstat(self.fd)
        if not self._temporary:
            temporary = _temporary_name()
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
        """Close the file; without a commit nothing of it remains."""
        os.close(self.fd)
        if self._temporary:
            with suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._directory)


def _temporary_name() -> str:
    return f".sandmesh-{secrets.token_hex(8)}"


@contextmanager
def open_replacement(path: str, mode: int) -> Generator[BinaryIO]:
    """Open a file that replaces `path` at the end of the block; an exception leaves what was there.

    Raises:
        OSError: The directory takes no file, or `path` is a directory.
    """
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a directory: name the file in it")
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Under a name: in a container without /proc an anonymous file could not get one.
        replacement = AtomicFile(directory, target.name, mode=0o600, anonymous=False)
        try:
            with os.fdopen(replacement.fd, "wb", closefd=False) as file:
                yield file
            replacement.commit(replace=True, mode=mode)
        finally:
            replacement.close()
    finally:
        os.close(directory)
