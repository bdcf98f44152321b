"""A branch of a workspace: its state when the branch began, and its changes since, for the workspace that it is of."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from sandmeshd.agent.files.arguments import write_line
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.requests import ApplyChanges, BeginBranch, ListChanges
from sandmeshd.agent.files.streams import InputReader
from sandmeshd.agent.files.trees.patches import packed, received
from sandmeshd.agent.files.trees.tree_states import EntryChange, EntryState, differences, scan
from sandmeshd.agent.processes.freezer import frozen

_MOST_NAMED: Final = 100

Rights = Callable[[], AbstractContextManager[None]]


class Branch:
    """The branch that a workspace is, if it is one; and patches of others' that are applied to it."""

    def __init__(self, workspace: Workspace, rights: Rights) -> None:
        self._workspace = workspace
        self._rights = rights
        self._lock = threading.Lock()
        self._base: tuple[str, dict[str, EntryState]] | None = None
        self._packed: tuple[list[EntryChange], dict[str, EntryState]] | None = None

    @contextmanager
    def still(self) -> Generator[int]:
        """Open the workspace while no process changes it, and no other call by this class."""
        with self._lock, self._rights(), frozen():
            fd = self._workspace.open_directory(".")
            try:
                yield fd
            finally:
                os.close(fd)

    def begin(self, request: BeginBranch) -> dict[str, Any]:
        """Hold the state, from which changes count.

        Raises:
            OSError: ENODATA where nothing was packed; E2BIG for more files than a state may have.
        """
        if request.packed:
            if self._base is None or self._packed is None:
                raise OSError(errno.ENODATA, "no changes were packed")
            self._base = self._base[0], self._packed[1]
        else:
            with self.still() as fd:
                self._base = request.base, scan(fd)
        self._packed = None
        return {"entries": len(self._base[1])}

    def _begun(self) -> tuple[str, dict[str, EntryState]]:
        if self._base is None:
            raise OSError(errno.ENODATA, "the sandbox is not a branch: box.overlay() makes one")
        return self._base

    def _changes(self, fd: int) -> tuple[list[EntryChange], dict[str, EntryState]]:
        _, before = self._begun()
        after = scan(fd, before)
        return differences(before, after), after

    def listed(self, request: ListChanges) -> Iterator[bytes]:
        """Yield the branch's sandbox and its changes, a line each."""
        if request.packed:
            with self._lock:
                base, changes = self._begun()[0], self._packed[0] if self._packed else []
        else:
            with self.still() as fd:
                base, changes = self._begun()[0], self._changes(fd)[0]
        yield write_line({"base": base})
        for change in changes:
            yield write_line(_plain(change))

    def pack(self, wanted: Callable[[], bool]) -> Iterator[bytes]:
        """Yield the changes as a patch.

        Raises:
            CallStopped: It is no longer awaited: a frozen sandbox does not wait for a client that may come back.
        """
        # The next piece may be requested by another thread, and rights are a thread's.
        with self._lock, frozen():
            fd = self._workspace.open_directory(".")
            try:
                with self._rights():
                    changes, after = self._changes(fd)
                pieces = packed(fd, changes)
                while True:
                    with self._rights():
                        piece = next(pieces, b"")
                    if not wanted():
                        raise CallStopped
                    if not piece:
                        break
                    yield piece
                self._packed = changes, after
            finally:
                os.close(fd)

    def apply(self, request: ApplyChanges, reader: int, input_reader: InputReader) -> dict[str, Any]:
        """Apply the patch that comes out of a pipe; return what was changed, or the conflicts.

        Raises:
            CallStopped: The input was cut off; nothing is kept.
            OSError: EBADMSG for what is not a patch, and what else the system says.
        """
        root = self._workspace.open_directory(".")
        try:
            with os.fdopen(os.dup(reader), "rb", buffering=0) as source, self._rights():
                try:
                    with received(root, source) as patch:
                        if not input_reader.whole:
                            raise CallStopped
                        with self._workspace.writing, self.still():
                            conflicts = [] if request.force else patch.conflicts()
                            if not conflicts:
                                patch.apply()
                            applied = 0 if conflicts else len(patch.changes)
                        return {"applied": applied, "conflicts": conflicts[:_MOST_NAMED], "count": len(conflicts)}
                except OSError:
                    if input_reader.stopped:
                        raise CallStopped from None
                    raise
        finally:
            os.close(root)


def _plain(change: EntryChange) -> dict[str, Any]:
    entry = change.after or change.before
    kind = "changed" if change.before and change.after else "added" if change.after else "removed"
    if entry is None:
        raise ValueError(change.path)
    return {"path": change.path, "change": kind, "type": entry.kind, "size": entry.size, "mode": entry.mode}
