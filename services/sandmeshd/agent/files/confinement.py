"""The directories that file tools may reach, and no way out of them.

User code can swap a name for a symbolic link at any moment, so no path is checked first and used afterwards. The kernel
resolves each path below a descriptor of its directory (openat2 with RESOLVE_BENEATH) and everything that is done to
it goes through the descriptor that came of it. Absolute links that point into the workspace are followed: the place
that they name is resolved the same way once more.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.files.messages import show
from sandmeshd.agent.files.syscalls import open_beneath

_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY
# Opening a FIFO would otherwise wait for its writer, for ever.
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


@dataclass(frozen=True)
class _Directory:
    path: str
    real: str
    fd: int

    def relative(self, path: str) -> str | None:
        """Return the rest of an absolute path below this directory; None if it is not below by its name."""
        for name in (self.path, self.real):
            prefix = name.rstrip("/") + "/"
            if f"{path}/".startswith(prefix):
                return path[len(prefix) :].lstrip("/") or "."
        return None


class Workspace:
    """The root that relative paths start from, and the further directories that tools may reach.

    Paths are relative to the root, or absolute below one of the directories. Every method that takes one raises
    ToolFailure where it leads out, and OSError for what the system says: `explained` turns that into words.
    """

    def __init__(self, root: str, granted: Sequence[str] = ()) -> None:
        """Open the directories; they must exist.

        Raises:
            OSError: One of them cannot be opened.
        """
        self.writing = threading.Lock()
        """Held while a file is changed, so that of two simultaneous edits none is lost."""
        self._directories: list[_Directory] = []
        try:
            for path in (root, *granted):
                fd = os.open(path, _DIRECTORY | os.O_CLOEXEC)
                self._directories.append(_Directory(str(Path(path).absolute()), os.path.realpath(path), fd))
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return the workspace, which the end of the block closes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the directories."""
        while self._directories:
            os.close(self._directories.pop().fd)

    @property
    def directories(self) -> list[str]:
        """The directories' paths, the root's first."""
        return [directory.path for directory in self._directories]

    def absolute(self, path: str) -> str:
        """Return the absolute form of a path, only by its text."""
        return os.path.normpath(Path(self._directories[0].path, path))

    def is_root(self, path: str) -> bool:
        """Return whether a path names one of the directories themselves."""
        return self._locate(path)[1] in {".", "./"}

    def open(self, path: str, flags: int) -> int:
        """Open what a path names; the caller closes it."""
        directory, relative = self._locate(path)
        try:
            return open_beneath(directory.fd, relative, flags)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        return self._open_linked(path, flags)

    def open_directory(self, path: str) -> int:
        """Open a directory for listing; the caller closes it."""
        return self.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def open_file(self, path: str) -> int:
        """Open a regular file for reading, never waiting for a writer; the caller closes it.

        Raises:
            ToolFailure: It is a FIFO, a device or a socket, or leads out.
        """
        fd = self.open(path, _READ)
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return fd
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise ToolFailure(f"{show(path)}: it is not a regular file but a FIFO, socket or device.")

    @contextmanager
    def parent(self, path: str, *, make: bool = False) -> Generator[tuple[int, str]]:
        """Open the directory that holds a path's last name, and return its descriptor and that name.

        A link of that name is not followed: what is done by descriptor and name is done to the link itself.
        With `make`, missing directories are made.
        """
        head, name = self._split(path)
        fd = self.make_directories(head) if make else self.open(head, _DIRECTORY)
        try:
            yield fd, name
        finally:
            os.close(fd)

    @contextmanager
    def destination(self, path: str) -> Generator[tuple[int, str]]:
        """Return directory and name as `parent` does, following a link of that name; create missing directories."""
        for candidate in (path, self._real(path)):
            with self.parent(candidate, make=True) as (fd, name):
                if not _is_link(fd, name):
                    yield fd, name
                    return
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def make_directories(self, path: str) -> int:
        """Make a directory with those above it where they are missing, and open it; the caller closes it."""
        missing: list[str] = []
        while True:
            try:
                fd = self.open(path, _DIRECTORY)
                break
            except FileNotFoundError:
                path, name = self._split(path)
                missing.append(name)
        for name in reversed(missing):
            fd = _make_below(fd, name)
        return fd

    def outside(self, path: str) -> ToolFailure:
        """Return the failure of a path that leads out of the workspace."""
        allowed = ", ".join(map(show, self.directories))
        return ToolFailure(f"{show(path)}: it is outside of what file tools may reach. Allowed: {allowed}.")

    def _real(self, path: str) -> str:
        # Only a hint, since links may change meanwhile: what it names is confined like every other path.
        _check_text(path)
        return os.path.realpath(Path(self._directories[0].path, path))

    def _open_linked(self, path: str, flags: int) -> int:
        directory, relative = self._locate(self._real(path), named=path)
        try:
            return open_beneath(directory.fd, relative, flags)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        raise self.outside(path)

    def _locate(self, path: str, named: str = "") -> tuple[_Directory, str]:
        _check_text(path)
        if not path.startswith("/"):
            return self._directories[0], path or "."
        plain = "/" + path.lstrip("/")
        found = [(len(d.path), d, rest) for d in self._directories if (rest := d.relative(plain)) is not None]
        if not found:
            raise self.outside(named or path)
        _, directory, rest = max(found, key=lambda each: each[0])
        return directory, rest

    def _split(self, path: str) -> tuple[str, str]:
        if self.is_root(path):
            raise ToolFailure(f"{show(path)}: it is one of the directories that tools start from, and stays as it is.")
        head, _, name = path.rstrip("/").rpartition("/")
        if name in {".", ".."}:
            raise ToolFailure(f"{show(path)}: name the file or directory itself; {name} cannot be made or moved.")
        return head or ("/" if path.startswith("/") else "."), name


def _check_text(path: str) -> None:
    if "\0" in path:
        raise ToolFailure(f"{show(path)}: a path cannot have a NUL character in it.")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolFailure(f"{show(path)}: a path must be valid Unicode text.") from None


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _make_below(directory: int, name: str) -> int:
    try:
        # Somebody else may be quicker; whether it is a directory is seen when it is opened.
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
        return open_beneath(directory, name, _DIRECTORY, follow=False)
    finally:
        os.close(directory)
