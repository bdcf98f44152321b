"""What a snapshot of a sandbox is made of: its workspace and its home at one moment, as one tar stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from sandmesh.shared.files.atomic_directory import fill_atomically
from sandmesh.shared.files.tar import pack_several, unpack_several
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.streams import InputReader
from sandmeshd.agent.processes.freezer import frozen

WORKSPACE, HOME = "workspace", "home"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def _roots(workspace: Workspace, home: str) -> Generator[Mapping[str, int]]:
    with ExitStack() as stack:
        opened = {WORKSPACE: workspace.open_directory(".")}
        stack.callback(os.close, opened[WORKSPACE])
        if home:
            opened[HOME] = os.open(home, _DIRECTORY)
            stack.callback(os.close, opened[HOME])
        yield opened


def saved(workspace: Workspace, home: str, wanted: Callable[[], bool]) -> Iterator[bytes]:
    """Yield both as a tar stream; the sandbox's other processes are frozen until it is complete or cancelled.

    Raises:
        CallStopped: It is no longer awaited: a frozen sandbox does not wait for a client that may come back.
    """
    with _roots(workspace, home) as roots, frozen():
        for piece in pack_several(roots):
            if not wanted():
                raise CallStopped
            yield piece


def restored(workspace: Workspace, home: str, reader: int, input_reader: InputReader) -> None:
    """Take what `saved` gave out of a pipe; entries that are there already and not in it stay.

    Raises:
        CallStopped: The input was cut off; nothing is kept.
        OSError: EBADMSG for what is not such a stream, and what else the system says.
    """

    def fill(roots: Mapping[str, int]) -> None:
        with os.fdopen(os.dup(reader), "rb", buffering=0) as source:
            try:
                unpack_several(source, roots)
            except OSError:
                if input_reader.stopped:
                    raise CallStopped from None
                raise
        if not input_reader.whole:
            raise CallStopped

    def place(left: list[tuple[str, int]], fresh: Mapping[str, int]) -> None:
        if not left:
            fill(fresh)
            return
        (name, fd), *others = left
        fill_atomically(fd, ".", lambda staged: place(others, {**fresh, name: staged}))

    with _roots(workspace, home) as roots:
        place(list(roots.items()), {})
