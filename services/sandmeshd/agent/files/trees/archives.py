"""Directories as tar streams into and out of the workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sandmesh.shared.files.atomic_directory import fill_atomically
from sandmesh.shared.files.ignore_patterns import IgnorePatterns
from sandmesh.shared.files.tar import pack, unpack
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.requests import Pack, Unpack
from sandmeshd.agent.files.streams import InputReader


def packed(workspace: Workspace, request: Pack) -> Iterator[bytes]:
    """Yield a directory as a tar stream."""
    exclude = IgnorePatterns(request.exclude)
    fd = workspace.open_directory(request.path)
    try:
        yield from pack(fd, any_modes=request.any_modes, exclude=exclude)
    finally:
        os.close(fd)


def unpacked(workspace: Workspace, request: Unpack, reader: int, input_reader: InputReader) -> None:
    """Make a directory of the tar stream that comes out of a pipe; one that is there gets its entries.

    Raises:
        CallStopped: The input was cut off; nothing is kept.
        OSError: EBADMSG for what is not a tar stream or leads out, and what else the system says.
    """

    def fill(fd: int) -> None:
        with os.fdopen(os.dup(reader), "rb", buffering=0) as source:
            try:
                unpack(source, fd, any_links=request.any_links)
            except OSError:
                if input_reader.stopped:
                    raise CallStopped from None
                raise
        if not input_reader.whole:
            raise CallStopped

    if workspace.is_root(request.path):
        fd = workspace.open_directory(request.path)
        try:
            fill_atomically(fd, ".", fill)
        finally:
            os.close(fd)
        return
    with workspace.parent(request.path, make=True) as (directory, name):
        fill_atomically(directory, name, fill)
