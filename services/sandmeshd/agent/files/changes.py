"""Making, moving and removing."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress

from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.entries import CHILD
from sandmeshd.agent.files.requests import Mkdir, Move, Remove
from sandmeshd.agent.files.syscalls import rename_without_replacing


def make_directory(workspace: Workspace, request: Mkdir) -> None:
    """Make a directory."""
    if request.parents:
        fd = workspace.make_directories(request.path)
        os.close(fd)
    if not request.parents or request.mode is not None:
        _make_one(workspace, request)


def _make_one(workspace: Workspace, request: Mkdir) -> None:
    with workspace.parent(request.path) as (directory, name):
        if not request.parents:
            os.mkdir(name, dir_fd=directory)
        if request.mode is not None:
            fd = os.open(name, CHILD, dir_fd=directory)
            try:
                os.fchmod(fd, request.mode & 0o7777)
            finally:
                os.close(fd)


def move(workspace: Workspace, request: Move) -> None:
    """Rename a file, directory or link as it is."""
    with workspace.parent(request.source) as source, workspace.parent(request.destination) as destination:
        if request.replace:
            os.rename(source[1], destination[1], src_dir_fd=source[0], dst_dir_fd=destination[0])
        else:
            rename_without_replacing(source, destination)


def remove(workspace: Workspace, request: Remove) -> None:
    """Remove a file, a link itself or a directory."""
    try:
        with workspace.parent(request.path) as (directory, name):
            remove_entry(directory, name, recursive=request.recursive)
    except FileNotFoundError:
        if not request.missing_ok:
            raise


def remove_entry(directory: int, name: str, *, recursive: bool) -> None:
    """Remove an entry of a directory, never through a link.

    Raises:
        OSError: As unlink(2) and rmdir(2) do; ENOTEMPTY where `recursive` would be needed.
    """
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=directory)
        return
    with suppress(OSError):
        os.rmdir(name, dir_fd=directory)
        return
    if not recursive:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), name)
    try:
        shutil.rmtree(name, dir_fd=directory)
    except RecursionError:
        raise OSError(errno.ENAMETOOLONG, "it is too deep: remove what is far below first", name) from None
