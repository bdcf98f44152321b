"""Directories as tar streams, packed and unpacked, in the SDK and in the agent: received streams are untrusted.

All operations are relative to descriptors and never follow a symbolic link, even if names are swapped concurrently.
The format is pax, https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tarfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Final, cast

from sandmesh.shared.ignore_patterns import IgnorePatterns

PIECE: Final = 256 * 1024
DEEPEST: Final = 200
_BLOCK: Final = 512
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def pack(fd: int, *, any_modes: bool = False, exclude: IgnorePatterns | None = None) -> Iterator[bytes]:
    """Pack a directory's content as a tar stream, in pieces of about PIECE bytes.

    Files, directories and links are included; sockets, FIFOs and devices are not. With `any_modes` also what its owner
    may not read is included; its mode is changed while it is read. What `exclude` matches is left out.
    """
    yield from _gathered(_Packer(any_modes, exclude).members(fd, "", DEEPEST))


def pack_several(roots: Mapping[str, int]) -> Iterator[bytes]:
    """Pack several directories as one tar stream, each below its name, including what its owner may not read."""
    yield from _gathered(_of_several(roots))


def _of_several(roots: Mapping[str, int]) -> Iterator[bytes]:
    for name, fd in roots.items():
        yield _header(name, os.fstat(fd), tarfile.DIRTYPE)
        yield from _Packer(any_modes=True).members(fd, f"{name}/", DEEPEST)


def _gathered(members: Iterator[bytes]) -> Iterator[bytes]:
    gathered = bytearray()
    for piece in members:
        gathered += piece
        if len(gathered) >= PIECE:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered) + bytes(2 * _BLOCK)


class _Packer:
    """Packs the members of a directory."""

    def __init__(self, any_modes: bool, exclude: IgnorePatterns | None = None) -> None:
        self._any_modes = any_modes
        self._exclude = exclude

    def members(self, fd: int, prefix: str, levels: int) -> Iterator[bytes]:
        """Yield the members of a directory."""
        with os.scandir(fd) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            with suppress(FileNotFoundError):  # it was removed meanwhile
                yield from self._member(fd, name, prefix + name, levels)

    def _member(self, fd: int, name: str, path: str, levels: int) -> Iterator[bytes]:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if self._exclude and self._exclude.leave_out(path, is_directory=stat.S_ISDIR(found.st_mode)):
            return
        if stat.S_ISLNK(found.st_mode):
            yield _header(path, found, tarfile.SYMTYPE, os.readlink(name, dir_fd=fd))
        elif stat.S_ISREG(found.st_mode):
            with self._readable(fd, name, found, 0o400):
                file = os.open(name, _READ, dir_fd=fd)
            yield from _file(file, path)
        elif stat.S_ISDIR(found.st_mode):
            yield _header(path, found, tarfile.DIRTYPE)
            if levels <= 0:
                raise OSError(errno.ENAMETOOLONG, f"the tree is deeper than {DEEPEST} levels", path)
            with self._readable(fd, name, found, 0o500):
                inner = os.open(name, _DIRECTORY, dir_fd=fd)
                try:
                    yield from self.members(inner, path + "/", levels - 1)
                finally:
                    os.close(inner)

    @contextmanager
    def _readable(self, fd: int, name: str, found: os.stat_result, needed: int) -> Generator[None]:
        mode = stat.S_IMODE(found.st_mode)
        if not self._any_modes or mode & needed == needed:
            yield
            return
        os.chmod(name, mode | needed, dir_fd=fd)
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                os.chmod(name, mode, dir_fd=fd)


def _file(file: int, path: str) -> Iterator[bytes]:
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return
        yield _header(path, found, tarfile.REGTYPE)
        left = found.st_size
        while left:
            piece = os.read(file, min(PIECE, left))
            if not piece:
                raise OSError(errno.ESTALE, "it was truncated while it was read", path)
            left -= len(piece)
            yield piece
        yield bytes(-found.st_size % _BLOCK)
    finally:
        os.close(file)


def _header(path: str, found: os.stat_result, kind: bytes, target: str = "") -> bytes:
    info = tarfile.TarInfo(path)
    info.type, info.linkname = kind, target
    info.size = found.st_size if kind == tarfile.REGTYPE else 0
    info.mode, info.mtime = stat.S_IMODE(found.st_mode), cast("int", found.st_mtime)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def refuse(path: str, why: str) -> OSError:
    """Return the error of a member that is refused."""
    return OSError(errno.EBADMSG, f"the archive's member {path!r} {why}; nothing of it is kept")


class _Unpacker:
    """Unpacks members into a directory."""

    def __init__(self, root: int, any_links: bool, set_ids: bool) -> None:
        self._root = root
        self._any_links = any_links
        # A stream of the sandbox's own may have what its owner set; anybody else's may not grant an identity.
        self._mask = 0o7777 if set_ids else 0o777
        self._directories: list[tuple[tuple[str, ...], int, float]] = []

    def take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Create a member.

        Raises:
            OSError: It leads outside, is not a file, directory or link, or cannot be created.
        """
        names = _names(member.name)
        if not names:
            return
        with self._parent(names[:-1], member.name) as parent:
            if member.isdir():
                self._make_directory(parent, names, member)
            elif member.isreg():
                _write(parent, names[-1], archive, member, self._mask)
            elif member.issym():
                if not self._any_links:
                    _check_link(names, member)
                _clear(parent, names[-1])
                os.symlink(member.linkname, names[-1], dir_fd=parent)
                os.utime(names[-1], (member.mtime, member.mtime), dir_fd=parent, follow_symlinks=False)
            elif member.islnk():
                self._link(parent, names[-1], member)
            else:
                raise refuse(member.name, "is a device or FIFO")

    def finish(self) -> None:
        """Set the modes and times of directories, the deepest first: one may be read-only."""
        for names, mode, time in reversed(self._directories):
            with self._parent(names, "/".join(names)) as fd:
                os.fchmod(fd, mode)
                try:
                    os.utime(fd, (time, time))
                except (ValueError, OverflowError):
                    raise refuse("/".join(names), "has a time that is not a number") from None

    @contextmanager
    def _parent(self, names: tuple[str, ...], path: str) -> Generator[int]:
        fd = os.dup(self._root)
        try:
            for name in names:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=fd)
                inner = _open_directory(fd, name, path)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _make_directory(self, parent: int, names: tuple[str, ...], member: tarfile.TarInfo) -> None:
        with suppress(FileExistsError):
            os.mkdir(names[-1], 0o755, dir_fd=parent)
        os.close(_open_directory(parent, names[-1], member.name))
        self._directories.append((names, member.mode & self._mask, member.mtime))

    def _link(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        names = _names(member.linkname)
        if not names:
            raise refuse(member.name, "is a link to nothing")
        with self._parent(names[:-1], member.name) as fd:
            if not stat.S_ISREG(os.stat(names[-1], dir_fd=fd, follow_symlinks=False).st_mode):
                raise refuse(member.name, "is a link to what is not a file of the archive")
            _clear(parent, name)
            os.link(names[-1], name, src_dir_fd=fd, dst_dir_fd=parent, follow_symlinks=False)


def _names(path: str) -> tuple[str, ...]:
    names = tuple(name for name in path.split("/") if name not in {"", "."})
    if path.startswith("/"):
        raise refuse(path, "has an absolute path")
    if ".." in names or "\0" in path:
        raise refuse(path, "leads outside")
    return names


def _check_link(names: tuple[str, ...], member: tarfile.TarInfo) -> None:
    """Accept only links that go up, not beyond the root, and then down: even chained, these never lead outside."""
    steps = [step for step in member.linkname.split("/") if step not in {"", "."}]
    up = 0
    while up < len(steps) and steps[up] == "..":
        up += 1
    if member.linkname.startswith("/") or ".." in steps[up:] or up > len(names) - 1:
        raise refuse(member.name, f"is a link that leads outside, to {member.linkname!r}")


def _open_directory(fd: int, name: str, path: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=fd)
    except NotADirectoryError:
        raise refuse(path, "goes through what is not a directory") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise refuse(path, "goes through a link") from None
        raise


def _write(parent: int, name: str, archive: tarfile.TarFile, member: tarfile.TarInfo, mask: int) -> None:
    _clear(parent, name)
    source = cast("IO[bytes]", archive.extractfile(member))
    with os.fdopen(os.open(name, _NEW, 0o600, dir_fd=parent), "wb", buffering=0) as file:
        shutil.copyfileobj(source, file, PIECE)
        os.fchmod(file.fileno(), member.mode & mask)
        os.utime(file.fileno(), (member.mtime, member.mtime))


def _clear(parent: int, name: str) -> None:
    """Remove an earlier member of the same name."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def unpack(source: IO[bytes], root: int, *, any_links: bool = False, set_ids: bool | None = None) -> None:
    """Unpack a tar stream into an empty directory, and read the stream to its end.

    With `any_links` symbolic links may point anywhere; none is ever followed. With `set_ids` set-id bits are kept, by
    default where links may point anywhere.

    Raises:
        OSError: EBADMSG for what is not a tar stream or has members that lead outside, else the system's error.
    """
    unpacker = _Unpacker(root, any_links, any_links if set_ids is None else set_ids)
    _take_each(source, unpacker.take)
    unpacker.finish()


def unpack_several(source: IO[bytes], roots: Mapping[str, int]) -> None:
    """Unpack a stream of `pack_several` into empty directories, and read it to its end; links may point anywhere.

    Raises:
        OSError: EBADMSG for what is not such a stream, else the system's error.
    """
    unpackers = {name: _Unpacker(fd, any_links=True, set_ids=True) for name, fd in roots.items()}

    def take(archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        root, _, rest = member.name.partition("/")
        if root not in unpackers:
            raise refuse(member.name, "is below none of its directories")
        member.name = rest
        unpackers[root].take(archive, member)

    _take_each(source, take)
    for unpacker in unpackers.values():
        unpacker.finish()


def _take_each(source: IO[bytes], take: Callable[[tarfile.TarFile, tarfile.TarInfo], None]) -> None:
    try:
        with tarfile.open(fileobj=source, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                take(archive, member)
                # It would keep every member, and a stream may have millions.
                archive.members = []  # type: ignore[attr-defined]  # missing from typeshed
    except (tarfile.TarError, ValueError, OverflowError) as error:
        # A ValueError is of a header of pax that is no number, or of a name with a NUL.
        raise OSError(errno.EBADMSG, f"it is not a complete tar stream: {error}; nothing of it is kept") from None
    while source.read(PIECE):
        pass


def fill_atomically(parent: int, name: str, fill: Callable[[int], None]) -> None:
    """Fill a staging directory, then rename it to `name`: it appears complete or not at all.

    If a directory of that name exists, or `name` is ".", the entries of the new one are moved into it one by one.

    Raises:
        OSError: `fill` or the system failed; nothing is left behind.
    """
    try:
        place = os.open(name, _DIRECTORY, dir_fd=parent)
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
    fd = os.open(staging, _DIRECTORY, dir_fd=holder)
    try:
        fill(fd)
        os.fchmod(fd, 0o755)
    finally:
        os.close(fd)


def _merge_into(holder: int, staging: str, place: int) -> None:
    fd = os.open(staging, _DIRECTORY, dir_fd=holder)
    try:
        _merge(fd, place)
    finally:
        os.close(fd)


def _merge(source: int, place: int) -> None:
    for name in os.listdir(source):
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        try:
            there = os.open(name, _DIRECTORY, dir_fd=place) if stat.S_ISDIR(found.st_mode) else -1
        except FileNotFoundError:
            there = -1
        if there < 0:
            _move(name, found.st_mode, source, place)
            continue
        inner = os.open(name, _DIRECTORY, dir_fd=source)
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
