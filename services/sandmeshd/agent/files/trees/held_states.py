"""States of a workspace that it can be returned to: each has a copy of all its files, in a file without a name."""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any, Final

from sandmesh.shared.files.atomic_file import OPENED
from sandmesh.shared.files.tar import pack
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.requests import DropState, HoldState, ListStates, ReturnToState
from sandmeshd.agent.files.trees.patches import staged
from sandmeshd.agent.files.trees.tree_states import MOST_ENTRIES, EntryState, differences, scan

MOST_STATES: Final = 32
LONGEST_NOTE: Final = 1 << 16
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | OPENED


@dataclass(frozen=True)
class _State:
    entries: dict[str, EntryState]
    archive: IO[bytes]
    note: str

    def facts(self, state_id: str) -> dict[str, Any]:
        size = os.fstat(self.archive.fileno()).st_size
        return {"state_id": state_id, "entries": len(self.entries), "size": size, "note": self.note}


class HeldStates:
    """The states of a workspace that are held."""

    def __init__(self, workspace: Workspace, still: Callable[[], AbstractContextManager[int]]) -> None:
        self._workspace = workspace
        self._still = still
        self._lock = threading.Lock()
        self._states: dict[str, _State] = {}
        self._made = 0

    def hold(self, request: HoldState) -> dict[str, Any]:
        """Hold the present state.

        Raises:
            OSError: EDQUOT for more states or entries than may be held, and what else the system says.
        """
        if len(request.note) > LONGEST_NOTE:
            raise OSError(errno.E2BIG, f"a note has at most {LONGEST_NOTE:,} characters")
        with self._lock, self._still() as fd:
            if len(self._states) >= MOST_STATES:
                raise OSError(errno.EDQUOT, f"at most {MOST_STATES} marks are held: drop one that is not needed")
            entries = scan(fd)
            held = sum(len(state.entries) for state in self._states.values())
            if held + len(entries) > MOST_ENTRIES:
                message = f"marks hold at most {MOST_ENTRIES:,} files together, and hold {held:,}: drop one"
                raise OSError(errno.EDQUOT, message)
            archive = _nameless(fd)
            try:
                for piece in pack(fd, any_modes=True):
                    archive.write(piece)
                archive.flush()
            except BaseException:
                archive.close()
                raise
            self._made += 1
            state_id = f"state-{self._made}"
            self._states[state_id] = _State(entries, archive, request.note)
            return self._states[state_id].facts(state_id)

    def listed(self, _: ListStates) -> dict[str, Any]:
        """Return what is held."""
        with self._lock:
            return {"states": [state.facts(state_id) for state_id, state in self._states.items()]}

    def return_to(self, request: ReturnToState) -> dict[str, Any]:
        """Make the workspace what it was; return how many entries were another.

        Raises:
            OSError: ENODATA for a state that is not held, and what else the system says; then nothing is changed.
        """
        with self._lock, self._workspace.writing, self._still() as fd:
            state = self._state(request.state_id)
            changes = differences(scan(fd, state.entries), state.entries)
            if changes:
                state.archive.seek(0)
                with staged(fd, changes, state.archive) as patch:
                    patch.apply()
            return {"changed": len(changes)}

    def drop(self, request: DropState) -> dict[str, Any]:
        """Drop a state.

        Raises:
            OSError: ENODATA for one that is not held.
        """
        with self._lock:
            self._state(request.state_id).archive.close()
            del self._states[request.state_id]
        return {}

    def _state(self, state_id: str) -> _State:
        state = self._states.get(state_id)
        if state is None:
            known = ", ".join(self._states) or "none"
            raise OSError(errno.ENODATA, f"there is no mark {state_id[:80]!r}; there are: {known}")
        return state


def _nameless(fd: int) -> IO[bytes]:
    """Return a new file in a directory's file system, which ends when it is closed."""
    name = f".sandmesh-{secrets.token_hex(8)}"
    file = os.open(name, _NEW, 0o600, dir_fd=fd)
    try:
        os.unlink(name, dir_fd=fd)
        return os.fdopen(file, "w+b")
    except BaseException:
        os.close(file)
        raise
