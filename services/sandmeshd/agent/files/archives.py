"""Directories as tar streams into and out of the workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sandmesh.shared.tar import fill_atomically, pack, unpack
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.failures import Cut
from sandmeshd.agent.files.requests import Pack, Unpack
from sandmeshd.agent.files.streams import Inlet


def packed(workspace: Workspace, asked: Pack) -> Iterator[bytes]:
    """Give a directory as a tar stream."""
    fd = workspace.open_directory(asked.path)
    try:
        yield from pack(fd, any_modes=asked.any_modes)
    finally:
        os.close(fd)


def unpacked(workspace: Workspace, asked: Unpack, reader: int, inlet: Inlet) -> None:
    """Make a directory of the tar stream that comes out of a pipe; one that is there gets its entries.

    Raises:
        Cut: The input was cut off; nothing is kept.
        OSError: EBADMSG for what is no tar stream or leads out, and what else the system says.
    """

    def fill(fd: int) -> None:
        with os.fdopen(os.dup(reader), "rb", buffering=0) as source:
            try:
                unpack(source, fd, any_links=asked.any_links)
            except OSError:
                if inlet.cut:
                    raise Cut from None
                raise
        if not inlet.whole:
            raise Cut

    if workspace.is_root(asked.path):
        fd = workspace.open_directory(asked.path)
        try:
            fill_atomically(fd, ".", fill)
        finally:
            os.close(fd)
        return
    with workspace.parent(asked.path, make=True) as (directory, name):
        fill_atomically(directory, name, fill)
