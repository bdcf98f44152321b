"""What a sandbox has changed of the image that is its root, as a tar stream, and the way back.

The changes are overlayfs's upper directory, which only the agent can see. A file that was removed is a character device
0:0 there, and a directory that hides the image's has the attribute user.overlay.opaque: see overlayfs.rst in the
kernel's documentation. They are applied through the root itself, before user code runs there.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Final

from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.streams import InputReader
from sandmeshd.agent.files.trees.tree_entries import ATTRIBUTE, OPAQUE, content_of, entries_below, member_of
from sandmeshd.agent.processes.freezer import frozen
from sandmeshd.agent.userland.core import syscalls

CHANGES, WORKSPACE = "changes", "workspace"
_PIECE: Final = 1 << 18
_MOUNTED: Final = frozenset({"proc", "dev", "tmp", "workspace", "opt/env", "opt/sandmesh", "run/agent"})
"""What is mounted there, and is not of the root."""


@contextmanager
def with_rights() -> Generator[None]:
    """Use the agent's rights over files of all users inside, for this thread, as long as the block runs."""
    before = syscalls.effective_capabilities()
    syscalls.hold_capabilities(syscalls.permitted_capabilities())
    try:
        yield
    finally:
        syscalls.hold_capabilities(before)


def saved(changes: str, workspace: str, wanted: Callable[[], bool]) -> Iterator[bytes]:
    """Yield what was changed and the workspace as a tar stream; other processes are frozen until it is complete.

    Raises:
        CallStopped: It is no longer awaited.
    """
    # In an image whose own directory that is, what is there is part of the changes.
    apart = {WORKSPACE: workspace} if os.path.ismount(workspace) else {}
    pieces = _packed({CHANGES: changes, **apart}, _MOUNTED if apart else _MOUNTED - {WORKSPACE})
    # The next piece may be requested by another thread, and rights are a thread's.
    with with_rights():
        stopped = frozen()
        stopped.__enter__()
    try:
        while True:
            with with_rights():
                piece = next(pieces, b"")
            if not wanted():
                raise CallStopped
            if not piece:
                return
            yield piece
    finally:
        with with_rights():
            stopped.__exit__(None, None, None)


def _packed(roots: dict[str, str], mounted: frozenset[str]) -> Iterator[bytes]:
    links: dict[tuple[int, int], str] = {}
    for name, root in roots.items():
        for path in entries_below(Path(root), mounted if name == CHANGES else frozenset()):
            found = path.lstat()
            member = member_of(path, f"{name}/{path.relative_to(root)}".removesuffix("/."), found)
            if member is None:
                continue
            if member.isreg() and found.st_nlink > 1:
                first = links.setdefault((found.st_dev, found.st_ino), member.name)
                if first != member.name:
                    member.type, member.linkname, member.size = tarfile.LNKTYPE, first, 0
            yield member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            if member.isreg():
                yield from content_of(path, member.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def restored(workspace: str, reader: int, input_reader: InputReader, root: str = "/") -> None:
    """Apply what `saved` yielded out of a pipe.

    Raises:
        CallStopped: The input was cut off.
        OSError: EBADMSG for what is not such a stream, and what else the system says.
    """
    with os.fdopen(os.dup(reader), "rb", buffering=0) as source, with_rights():
        try:
            _apply(source, {CHANGES: root, WORKSPACE: workspace})
        except tarfile.TarError as error:
            if input_reader.stopped:
                raise CallStopped from None
            raise OSError(errno.EBADMSG, f"it is not a snapshot of an image's changes: {error}") from None
        while source.read(_PIECE):
            pass
    if not input_reader.whole:
        raise CallStopped


def _apply(source: IO[bytes], roots: dict[str, str]) -> None:
    folders: list[tuple[str, tarfile.TarInfo]] = []
    with tarfile.open(fileobj=source, mode="r|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for member in archive:
            path = _place(member.name, roots)
            _put(path, member, archive, roots)
            if member.isdir():
                folders.append((path, member))
    # What was written into a directory changed its times.
    for path, member in reversed(folders):
        os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)


def _place(name: str, roots: dict[str, str]) -> str:
    top, *parts = PurePosixPath(name).parts
    if top not in roots or ".." in parts:
        raise OSError(errno.EBADMSG, f"{name} is outside of the root")
    return str(PurePosixPath(roots[top], *parts))


def _put(path: str, member: tarfile.TarInfo, archive: tarfile.TarFile, roots: dict[str, str]) -> None:
    attributes = {
        name.removeprefix(ATTRIBUTE): value.encode("utf-8", "surrogateescape")
        for name, value in member.pax_headers.items()
        if name.startswith(ATTRIBUTE)
    }
    is_folder = member.isdir() and os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
    opaque = attributes.pop(OPAQUE, None) == b"y"
    if not is_folder or opaque:
        _clear(path, keep=is_folder)
    if member.ischr():
        return
    if member.islnk():
        os.link(_place(member.linkname, roots), path, follow_symlinks=False)
        return
    if not is_folder:
        _make(path, member, archive)
    os.chown(path, member.uid, member.gid, follow_symlinks=False)
    if not member.issym():
        os.chmod(path, member.mode)  # noqa: PTH101 - after the owner's change, which clears set-uid bits
    for name, value in attributes.items():
        with suppress(PermissionError):
            os.setxattr(path, name, value, follow_symlinks=False)
    os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)


def _make(path: str, member: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
    if member.isdir():
        os.mkdir(path, 0o700)  # noqa: PTH102
    elif member.issym():
        os.symlink(member.linkname, path)  # noqa: PTH211
    elif member.isfifo():
        os.mkfifo(path, 0o600)
    else:
        content = archive.extractfile(member)
        if content is None:
            raise OSError(errno.EBADMSG, f"{member.name} has a kind that snapshots have not")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with content, os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(content, file, _PIECE)


def _clear(path: str, *, keep: bool) -> None:
    """Remove what is at a path; with `keep` it is a directory, and only what is in it goes."""
    if keep:
        for name in os.listdir(path):  # noqa: PTH208
            _clear(f"{path.rstrip('/')}/{name}", keep=False)
    elif os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
