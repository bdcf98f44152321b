"""Directories that are filled beside their place and moved there whole."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress

from sandmesh.shared.files.atomic_file import OPENED_DIRECTORY


def fill_atomically(parent: int, name: str, fill: Callable[[int], None]) -> None:
    """Fill a staging directory, then rename it to `name`: it appears complete or not at all.

    If a directory of that name exists, or `name` is ".", the entries of the new one are moved into it one by one.

    Raises:
        OSError: `fill` or the system failed; nothing is left behind.
    """
    try:
        place = os.open(name, OPENED_DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        place = -1
    holder = parent if place < 0 else place
    staging = f".sandmesh-{secrets.token_hex(8)}"
    os.mkdir(staging, 0o700, dir_fd=holder)
    try:
        _fill(holder, staging, fill)
        if place < 0:
            os.rename(staging, name, src_dir_fd=parent, dst_dir_fd=parent)
        else:
            _merge_into(holder, staging, place)
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(staging, dir_fd=holder)
        if place >= 0:
            os.close(place)


def _fill(holder: int, staging: str, fill: Callable[[int], None]) -> None:
    fd = os.open(staging, OPENED_DIRECTORY, dir_fd=holder)
    try:
        fill(fd)
        os.fchmod(fd, 0o755)
    finally:
        os.close(fd)


def _merge_into(holder: int, staging: str, place: int) -> None:
    fd = os.open(staging, OPENED_DIRECTORY, dir_fd=holder)
    try:
        _merge(fd, place)
    finally:
        os.close(fd)


def _merge(source: int, place: int) -> None:
    for name in os.listdir(source):
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        try:
            there = os.open(name, OPENED_DIRECTORY, dir_fd=place) if stat.S_ISDIR(found.st_mode) else -1
        except FileNotFoundError:
            there = -1
        if there < 0:
            _move(name, found.st_mode, source, place)
            continue
        inner = os.open(name, OPENED_DIRECTORY, dir_fd=source)
        try:
            _merge(inner, there)
            with suppress(PermissionError):  # it may be another user's
                os.utime(there, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(inner)
            os.close(there)


def _move(name: str, mode: int, source: int, place: int) -> None:
    # A directory without write permission cannot be moved: its ".." entry changes.
    locked = stat.S_ISDIR(mode) and not mode & stat.S_IWUSR
    if locked:
        os.chmod(name, stat.S_IMODE(mode) | stat.S_IWUSR, dir_fd=source)
    try:
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=place)
    except OSError as error:
        # A mount point belongs to the sandbox, and stays.
        if error.errno != errno.EBUSY:
            raise
        return
    if locked:
        os.chmod(name, stat.S_IMODE(mode), dir_fd=place)
