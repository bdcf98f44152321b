"""Patches of a directory tree: its changes since a state, as a stream, and their application to another tree.

The stream is the length of the changes in 8 bytes, the changes as JSON, and a tar of what was added or changed. It is
applied whole or not at all. Where the other tree has changed in the same places, these are conflicts.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any, Final, cast

from sandmesh.shared.files.atomic_file import OPENED_DIRECTORY
from sandmesh.shared.files.tar import pack, readable, unpack
from sandmeshd.agent.files.trees.tree_states import (
    DIRECTORY,
    FILE,
    LINK,
    MOST_ENTRIES,
    STAGING,
    EntryChange,
    EntryState,
    entry_of,
)

_LENGTH: Final = struct.Struct(">Q")
_LONGEST_CHANGES: Final = 64 << 20
_WRITABLE: Final = 0o700


class _Only:
    """Leaves out of a tree what was not added or changed."""

    def __init__(self, changes: Sequence[EntryChange]) -> None:
        self._kept: set[str] = set()
        for change in changes:
            names = change.path.split("/") if change.after else []
            self._kept.update("/".join(names[: end + 1]) for end in range(len(names)))

    def leave_out(self, path: str, *, is_directory: bool) -> bool:
        """Return whether a path is not in the patch."""
        return path not in self._kept


def packed(fd: int, changes: Sequence[EntryChange]) -> Iterator[bytes]:
    """Yield a patch with a tree's changes."""
    written = json.dumps([[path, _plain(before), _plain(after)] for path, before, after in changes]).encode()
    yield _LENGTH.pack(len(written)) + written
    yield from pack(fd, any_modes=True, exclude=_Only(changes))


def _plain(entry: EntryState | None) -> list[Any] | None:
    return None if entry is None else list(entry.facts)


class Patch:
    """A patch that was received, with its tree in a staging directory."""

    def __init__(self, root: int, changes: Sequence[EntryChange], staged: int, displaced: int) -> None:
        self.changes = changes
        self._root = root
        self._staged = staged
        self._displaced = displaced

    def conflicts(self) -> list[str]:
        """Return the paths that are not as they were where the patch was made; nothing may change meanwhile."""
        removed = {path for path, _, after in self.changes if after is None or after.kind != DIRECTORY}
        return [change.path for change in self.changes if not self._fits(change, removed)]

    def _fits(self, change: EntryChange, removed: set[str]) -> bool:
        try:
            with _parent(self._root, change.path) as (fd, name):
                there = entry_of(fd, name)
                if there is None or change.before is None or there.facts != change.before.facts:
                    return there is None and change.before is None
                if there.kind != DIRECTORY or change.path not in removed:
                    return True
                with readable(fd, name, os.stat(name, dir_fd=fd, follow_symlinks=False), 0o500):
                    inside = os.open(name, OPENED_DIRECTORY, dir_fd=fd)
                try:
                    with os.scandir(inside) as entries:
                        return all(f"{change.path}/{entry.name}" in removed for entry in entries)
                finally:
                    os.close(inside)
        except (FileNotFoundError, NotADirectoryError):
            # Where nothing was and its directory is new as well, nothing is in the way.
            return change.before is None and any(
                change.path.startswith(f"{path}/") and (before is None or before.kind != DIRECTORY)
                for path, before, _ in self.changes
            )

    def apply(self) -> None:
        """Apply the changes; if one fails, those before it are undone.

        Raises:
            OSError: One cannot be applied.
        """
        undo: list[Callable[[], None]] = []
        try:
            top = "/"
            for change in self.changes:
                if not change.path.startswith(top):
                    top = self._apply(change, undo) or top
        except BaseException:
            for step in reversed(undo):
                with suppress(OSError):
                    step()
            raise

    def _apply(self, change: EntryChange, undo: list[Callable[[], None]]) -> str:
        """Apply a change; return what begins the paths that were changed with it, if there are such."""
        whole = f"{change.path}/"
        with _parent(self._root, change.path, writable=True) as (fd, name):
            there = entry_of(fd, name)
            if there and change.after and there.kind == change.after.kind == DIRECTORY:
                os.chmod(name, change.after.mode, dir_fd=fd)
                undo.append(lambda: self._set_mode(change.path, there.mode))
                return ""
            if there is not None:
                self._displace(change.path, there, (fd, name), undo)
            if change.after is None:
                return whole
            with _parent(self._staged, change.path, writable=True) as (staged, _):
                _rename((staged, name), (fd, name), change.after)
            undo.append(lambda: self._take_back(change.path))
            return whole

    def _displace(self, path: str, there: EntryState, place: tuple[int, str], undo: list[Callable[[], None]]) -> None:
        aside = self._displaced, secrets.token_hex(8)
        _rename(place, aside, there)

        def put_back() -> None:
            with _parent(self._root, path, writable=True) as (fd, name):
                _rename(aside, (fd, name), there)

        undo.append(put_back)

    def _take_back(self, path: str) -> None:
        with _parent(self._root, path, writable=True) as (fd, name):
            os.rename(name, secrets.token_hex(8), src_dir_fd=fd, dst_dir_fd=self._displaced)

    def _set_mode(self, path: str, mode: int) -> None:
        with _parent(self._root, path) as (fd, name):
            os.chmod(name, mode, dir_fd=fd)


@contextmanager
def received(root: int, source: IO[bytes]) -> Generator[Patch]:
    """Receive a patch for a tree into a staging directory, which is removed at the end of the block.

    Raises:
        OSError: EBADMSG for what is not a patch, and what else the system says.
    """
    with staged(root, _read_changes(source), source) as patch:
        yield patch


@contextmanager
def staged(root: int, changes: Sequence[EntryChange], source: IO[bytes]) -> Generator[Patch]:
    """Make a patch of changes and of a tar that has at least what they add or change, as `received` does.

    Raises:
        OSError: EBADMSG where the tar lacks some of it, and what else the system says.
    """
    name = f".sandmesh-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        os.mkdir(name, 0o700, dir_fd=root)
        stack.callback(_remove, root, name)
        place = _opened(stack, root, name)
        os.mkdir("staged", 0o700, dir_fd=place)
        os.mkdir("displaced", 0o700, dir_fd=place)
        tree = _opened(stack, place, "staged")
        unpack(source, tree, any_links=True, exclude=_Only(changes))
        _check_staged(tree, changes)
        yield Patch(root, changes, tree, _opened(stack, place, "displaced"))


def _opened(stack: ExitStack, fd: int, name: str) -> int:
    inner = os.open(name, OPENED_DIRECTORY, dir_fd=fd)
    stack.callback(os.close, inner)
    return inner


def _remove(root: int, name: str) -> None:
    with suppress(OSError):
        _open_up(root, name)
    shutil.rmtree(name, dir_fd=root, ignore_errors=True)


def _open_up(fd: int, name: str) -> None:
    """Add the owner's permissions to a directory and those below it, so that they can be removed."""
    os.chmod(name, _WRITABLE, dir_fd=fd)
    inner = os.open(name, OPENED_DIRECTORY, dir_fd=fd)
    try:
        with os.scandir(inner) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for one in names:
            _open_up(inner, one)
    finally:
        os.close(inner)


def _read_changes(source: IO[bytes]) -> list[EntryChange]:
    (length,) = _LENGTH.unpack(_exactly(source, _LENGTH.size))
    if length > _LONGEST_CHANGES:
        raise _refused(f"its changes have {length:,} bytes")
    try:
        parsed: object = json.loads(_exactly(source, length))
    except (ValueError, RecursionError):
        raise _refused("its changes are not JSON") from None
    if not isinstance(parsed, list) or len(cast("list[object]", parsed)) > MOST_ENTRIES:
        raise _refused("its changes are not a list, or too long")
    changes = [_read_change(item) for item in cast("list[object]", parsed)]
    return sorted(changes, key=lambda change: change.path.split("/"))


def _read_change(item: object) -> EntryChange:
    parts = cast("list[object]", item) if isinstance(item, list) else []
    if len(parts) != 3 or not isinstance(parts[0], str) or not _is_path(parts[0]):
        raise _refused("a change has another form")
    return EntryChange(parts[0], _read_entry(parts[1]), _read_entry(parts[2]))


def _is_path(path: str) -> bool:
    names = path.split("/")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return "\0" not in path and not {"", ".", ".."} & {*names} and not STAGING.fullmatch(names[0])


def _read_entry(item: object) -> EntryState | None:
    match item:
        case None:
            return None
        case [str(kind), int(mode), int(size), str(digest)] if kind in {FILE, DIRECTORY, LINK} and 0 <= mode <= 0o7777:
            return EntryState(kind, mode, size, digest)
        case _:
            raise _refused("an entry has another form")


def _exactly(source: IO[bytes], length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = source.read(min(length - len(data), 1 << 18))
        if not piece:
            raise _refused("it ends early")
        data += piece
    return bytes(data)


def _refused(why: str) -> OSError:
    return OSError(errno.EBADMSG, f"it is not a patch: {why}")


def _check_staged(staged: int, changes: Sequence[EntryChange]) -> None:
    for path, _, after in changes:
        if after is None:
            continue
        try:
            with _parent(staged, path) as (fd, name):
                there = entry_of(fd, name)
        except OSError:
            there = None
        if there is None or there.facts != after.facts:
            raise _refused(f"{path!r} is not in it as its changes say")


@contextmanager
def _parent(root: int, path: str, *, writable: bool = False) -> Generator[tuple[int, str]]:
    """Open the directory of a path's last name, through no link; its owner may search, and change it if `writable`."""
    *above, name = path.split("/")
    needed = _WRITABLE if writable else 0o500
    with ExitStack() as stack:
        fd = root
        for part in above:
            found = os.stat(part, dir_fd=fd, follow_symlinks=False)
            stack.enter_context(readable(fd, part, found, needed))
            fd = _opened(stack, fd, part)
        yield fd, name


def _rename(source: tuple[int, str], destination: tuple[int, str], entry: EntryState) -> None:
    """Move an entry; a directory without permission to write cannot be moved, since its parent's name changes."""
    locked = entry.kind == DIRECTORY and entry.mode & _WRITABLE != _WRITABLE
    if locked:
        os.chmod(source[1], entry.mode | _WRITABLE, dir_fd=source[0])
    os.rename(source[1], destination[1], src_dir_fd=source[0], dst_dir_fd=destination[0])
    if locked:
        os.chmod(destination[1], entry.mode, dir_fd=destination[0])
