"""The state of a directory tree: what each entry is, with a digest of what it holds, and how two states differ.

Paths are relative to the tree. Nothing follows a symbolic link; sockets, FIFOs and devices are no part of a state.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from sandmesh.shared.files.atomic_file import OPENED, OPENED_DIRECTORY
from sandmesh.shared.files.tar import DEEPEST, readable

MOST_ENTRIES: Final = 200_000
FILE, DIRECTORY, LINK = "file", "directory", "symlink"
STAGING: Final = re.compile(r"\.sandmesh-[0-9a-f]{16}")
"""The names of what is being written beside its place, which a state leaves out."""
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | OPENED
_PIECE: Final = 1 << 18
# The kernel's clock of files lags behind by up to a tick: what was changed so recently may change again unseen.
_RECENT_NS: Final = 50_000_000


class EntryState(NamedTuple):
    """A file, directory or link; the digest is that of a file's content or of a link's target."""

    kind: str
    mode: int
    size: int
    digest: str
    stamp: tuple[int, ...] = ()
    """What changes with the file: inode, size, times. Empty where a change could be missed by it."""

    @property
    def facts(self) -> tuple[str, int, int, str]:
        """What makes it another entry."""
        return self[:4]


class EntryChange(NamedTuple):
    """An entry that is another one now; None: there was none, or there is none any more."""

    path: str
    before: EntryState | None
    after: EntryState | None


def differences(before: Mapping[str, EntryState], after: Mapping[str, EntryState]) -> list[EntryChange]:
    """Return what differs, each directory before what is in it."""
    changed = [path for path in before.keys() | after.keys() if _facts(before.get(path)) != _facts(after.get(path))]
    return [
        EntryChange(path, before.get(path), after.get(path)) for path in sorted(changed, key=lambda one: one.split("/"))
    ]


def _facts(entry: EntryState | None) -> tuple[str, int, int, str] | None:
    return None if entry is None else entry.facts


def scan(fd: int, known: Mapping[str, EntryState] | None = None) -> dict[str, EntryState]:
    """Return the state of a tree. Files that are as in `known` by their stamps are not read again.

    Raises:
        OSError: It has more entries than a state may, is too deep, or cannot be read.
    """
    found: dict[str, EntryState] = {}
    for path, entry in _Scanner(known or {}).entries(fd, "", DEEPEST):
        if len(found) >= MOST_ENTRIES:
            raise OSError(errno.E2BIG, f"there are more than {MOST_ENTRIES:,} files", path)
        found[path] = entry
    return found


def entry_of(fd: int, name: str) -> EntryState | None:
    """Return an entry of a directory; None where there is none that could be part of a state."""
    return _Scanner({}).entry(fd, name, name)


class _Scanner:
    """Reads the entries of a tree."""

    def __init__(self, known: Mapping[str, EntryState]) -> None:
        self._known = known
        self._recent = time.time_ns() - _RECENT_NS

    def entries(self, fd: int, prefix: str, levels: int) -> Iterator[tuple[str, EntryState]]:
        """Yield what is below a directory, each directory before what is in it."""
        with os.scandir(fd) as listed:
            names = sorted(entry.name for entry in listed)
        for name in names:
            if STAGING.fullmatch(name):
                continue
            path = prefix + name
            entry = self.entry(fd, name, path)
            if entry is None:
                continue
            yield path, entry
            if entry.kind == DIRECTORY:
                with suppress(FileNotFoundError, NotADirectoryError):  # removed meanwhile
                    yield from self._below(fd, name, path, levels)

    def _below(self, fd: int, name: str, path: str, levels: int) -> Iterator[tuple[str, EntryState]]:
        if levels <= 0:
            raise OSError(errno.ENAMETOOLONG, f"the tree is deeper than {DEEPEST} levels", path)
        with readable(fd, name, os.stat(name, dir_fd=fd, follow_symlinks=False), 0o500):
            inner = os.open(name, OPENED_DIRECTORY, dir_fd=fd)
            try:
                yield from self.entries(inner, path + "/", levels - 1)
            finally:
                os.close(inner)

    def entry(self, fd: int, name: str, path: str) -> EntryState | None:
        """Return an entry; None where there is none that is part of a state."""
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            mode = stat.S_IMODE(found.st_mode)
            if stat.S_ISDIR(found.st_mode):
                return EntryState(DIRECTORY, mode, 0, "")
            if stat.S_ISLNK(found.st_mode):
                target = os.fsencode(os.readlink(name, dir_fd=fd))
                return EntryState(LINK, 0o777, len(target), hashlib.blake2b(target, digest_size=16).hexdigest())
            return self._file(fd, name, path, found) if stat.S_ISREG(found.st_mode) else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _file(self, fd: int, name: str, path: str, found: os.stat_result) -> EntryState | None:
        known = self._known.get(path)
        if known is not None and known.stamp and known.stamp == _stamp(found):
            return known
        with readable(fd, name, found, 0o400):
            file = os.open(name, _READ, dir_fd=fd)
        try:
            opened = os.fstat(file)
            if not stat.S_ISREG(opened.st_mode):
                return None
            digest, size = _digest(file)
            mode = stat.S_IMODE(found.st_mode)
            calm = found.st_ctime_ns < self._recent and _stamp(os.fstat(file)) == _stamp(found)
            return EntryState(FILE, mode, size, digest, _stamp(found) if calm else ())
        finally:
            os.close(file)


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mode, found.st_mtime_ns, found.st_ctime_ns


def _digest(file: int) -> tuple[str, int]:
    digest, size = hashlib.blake2b(digest_size=16), 0
    while piece := os.read(file, _PIECE):
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(), size
