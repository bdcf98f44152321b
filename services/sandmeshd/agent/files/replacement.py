"""Replacing a file of the workspace, with the mode of the one that was there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager

from sandmesh.shared.files.atomic_file import AtomicFile
from sandmeshd.agent.files.confinement import Workspace


@contextmanager
def open_replacement(
    workspace: Workspace, path: str, *, make_parents: bool
) -> Generator[tuple[AtomicFile, int | None]]:
    """Open a new file for a path, and return with it the mode of the file that is there now.

    Raises:
        OSError: As `mode_of_replaceable` does, or the directory takes no file.
    """
    if not make_parents:
        with workspace.parent(path):
            pass
    with workspace.destination(path) as (directory, name):
        mode = mode_of_replaceable(directory, name)
        replacement = AtomicFile(directory, name)
        try:
            yield replacement, mode
        finally:
            replacement.close()


def mode_of_replaceable(directory: int, name: str) -> int | None:
    """Return the mode of the file with a name; None where there is none.

    Raises:
        OSError: EISDIR for a directory, EACCES for a read-only file, ENXIO for a FIFO, socket or device.
    """
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(mode):
        raise OSError(errno.ENXIO, "it is not a regular file but a FIFO, socket or device", name)
    if not os.access(name, os.W_OK, dir_fd=directory, effective_ids=True):
        raise PermissionError(errno.EACCES, "it is read-only", name)
    return stat.S_IMODE(mode)
