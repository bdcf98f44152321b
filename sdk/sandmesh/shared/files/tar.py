"""Directories as tar streams, packed and unpacked, in the SDK and in the agent: received streams are untrusted.

All operations are relative to descriptors and never follow a symbolic link, even if names are swapped concurrently.
The format is pax, https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from operator import attrgetter
from typing import IO, Final, Protocol, cast

from sandmesh.shared.files.atomic_file import OPENED, OPENED_DIRECTORY
from sandmesh.shared.files.tar_headers import BLOCK, PIECE, ForwardStream, Member, header

DEEPEST: Final = 200
LONGEST_SHOWN: Final = 200
_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | OPENED
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPENED


class Exclusion(Protocol):
    """Decides which paths of a tree are left out."""

    def leave_out(self, path: str, *, is_directory: bool) -> bool:
        """Return whether a path, with all below it, is left out."""
        ...


def pack(fd: int, *, any_modes: bool = False, exclude: Exclusion | None = None) -> Iterator[bytes]:
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
    yield bytes(gathered) + bytes(2 * BLOCK)


class _Packer:
    """Packs the members of a directory."""

    def __init__(self, any_modes: bool, exclude: Exclusion | None = None) -> None:
        self._any_modes = any_modes
        self._exclude = exclude

    def members(self, fd: int, prefix: str, levels: int) -> Iterator[bytes]:
        """Yield the members of a directory."""
        with os.scandir(fd) as entries:
            found = sorted(entries, key=attrgetter("name"))
        for entry in found:
            with suppress(FileNotFoundError):  # it was removed meanwhile
                path = prefix + entry.name
                if self._exclude and self._exclude.leave_out(path, is_directory=entry.is_dir(follow_symlinks=False)):
                    continue
                if entry.is_file(follow_symlinks=False):
                    yield from self._file(fd, entry.name, path)
                else:
                    yield from self._other(fd, entry.name, path, levels)

    def _file(self, fd: int, name: str, path: str) -> Iterator[bytes]:
        try:
            file = os.open(name, _READ, dir_fd=fd)
        except PermissionError:
            if not self._any_modes:
                raise _unreadable(path) from None
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            with readable(fd, name, found, 0o400):
                file = os.open(name, _READ, dir_fd=fd)
        try:
            found = os.fstat(file)
            if stat.S_ISREG(found.st_mode):
                yield from _content(file, found, path)
        finally:
            os.close(file)

    def _readable(self, fd: int, name: str, found: os.stat_result, needed: int) -> AbstractContextManager[None]:
        return readable(fd, name, found, needed) if self._any_modes else nullcontext()

    def _other(self, fd: int, name: str, path: str, levels: int) -> Iterator[bytes]:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            yield _header(path, found, tarfile.SYMTYPE, os.readlink(name, dir_fd=fd))
        elif stat.S_ISDIR(found.st_mode):
            yield _header(path, found, tarfile.DIRTYPE)
            if levels <= 0:
                raise OSError(errno.ENAMETOOLONG, f"the tree is deeper than {DEEPEST} levels", path)
            with self._readable(fd, name, found, 0o500):
                try:
                    inner = os.open(name, OPENED_DIRECTORY, dir_fd=fd)
                except PermissionError:
                    raise _unreadable(path) from None
                try:
                    yield from self.members(inner, path + "/", levels - 1)
                finally:
                    os.close(inner)


def _unreadable(path: str) -> OSError:
    shown = path.encode(errors="backslashreplace").decode()[:LONGEST_SHOWN]
    return OSError(errno.EACCES, f"{shown} in it may not be read: leave it out, or change its mode")


@contextmanager
def readable(fd: int, name: str, found: os.stat_result, needed: int) -> Generator[None]:
    """Add the `needed` permissions of an entry's owner for the time of a block, where its mode lacks them."""
    mode = stat.S_IMODE(found.st_mode)
    if mode & needed == needed:
        yield
        return
    os.chmod(name, mode | needed, dir_fd=fd)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.chmod(name, mode, dir_fd=fd)


def _content(file: int, found: os.stat_result, path: str) -> Iterator[bytes]:
    """Yield a file with its header, a small one as one piece."""
    left = found.st_size
    piece = os.read(file, min(PIECE, left)) if left else b""
    yield b"".join((_header(path, found, tarfile.REGTYPE), piece, b"" if len(piece) < left else bytes(-left % BLOCK)))
    if len(piece) == left:
        return
    while left := left - len(piece):
        piece = os.read(file, min(PIECE, left))
        if not piece:
            raise OSError(errno.ESTALE, "it was truncated while it was read", path)
        yield piece
    yield bytes(-found.st_size % BLOCK)


def _header(path: str, found: os.stat_result, kind: bytes, target: str = "") -> bytes:
    mode, size = stat.S_IMODE(found.st_mode), found.st_size if kind == tarfile.REGTYPE else 0
    plain = header(path, mode, size, found.st_mtime_ns, kind, target)
    if plain is not None:
        return plain
    info = tarfile.TarInfo(path)
    info.type, info.linkname, info.size = kind, target, size
    info.mode, info.mtime = mode, cast("int", found.st_mtime)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def refuse(path: str, why: str) -> OSError:
    """Return the error of a member that is refused."""
    return OSError(errno.EBADMSG, f"the archive's member {path!r} {why}; nothing of it is kept")


class TarUnpacker:
    """Unpacks members into a directory."""

    def __init__(self, root: int, any_links: bool, set_ids: bool) -> None:
        self._root = root
        self._any_links = any_links
        # A stream of the sandbox's own may have what its owner set; anybody else's may not grant an identity.
        self._mask = 0o7777 if set_ids else 0o777
        self._directories: list[tuple[tuple[str, ...], int, tuple[int, int]]] = []
        # Members come directory by directory: the last one stays open for the next.
        self._last: tuple[tuple[str, ...], int] = ((), os.dup(root))

    def close(self) -> None:
        """Close what is open."""
        os.close(self._last[1])

    def take(self, archive: tarfile.TarFile, member: Member) -> None:
        """Create a member.

        Raises:
            OSError: It leads outside, is not a file, directory or link, or cannot be created.
        """
        names = _names(member.name)
        if not names:
            return
        parent = self._parent(names[:-1], member.name)
        if member.isreg():
            _write(parent, names[-1], archive, member, self._mask)
        elif member.isdir():
            self._make_directory(parent, names, member)
        elif member.issym():
            if not self._any_links:
                _check_link(names, member)
            _clear(parent, names[-1])
            os.symlink(member.linkname, names[-1], dir_fd=parent)
            os.utime(names[-1], ns=member.times, dir_fd=parent, follow_symlinks=False)
        elif member.islnk():
            self._link(parent, names[-1], member)
        else:
            raise refuse(member.name, "is a device or FIFO")

    def finish(self) -> None:
        """Set the modes and times of directories, the deepest first: one may be read-only."""
        for names, mode, times in reversed(self._directories):
            fd = self._parent(names, "/".join(names))
            os.fchmod(fd, mode)
            os.utime(fd, ns=times)

    def _parent(self, names: tuple[str, ...], path: str) -> int:
        """Return a directory's descriptor, which is open until the next is asked for, creating what is missing."""
        last, fd = self._last
        if names == last:
            return fd
        below = names[: len(last)] == last
        fd = os.dup(fd if below else self._root)
        try:
            for name in names[len(last) if below else 0 :]:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=fd)
                inner = _open_directory(fd, name, path)
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        os.close(self._last[1])
        self._last = names, fd
        return fd

    def _make_directory(self, parent: int, names: tuple[str, ...], member: Member) -> None:
        with suppress(FileExistsError):
            os.mkdir(names[-1], 0o755, dir_fd=parent)
        os.close(_open_directory(parent, names[-1], member.name))
        self._directories.append((names, member.mode & self._mask, member.times))

    def _link(self, parent: int, name: str, member: Member) -> None:
        names = _names(member.linkname)
        if not names:
            raise refuse(member.name, "is a link to nothing")
        place = os.dup(parent)
        try:
            fd = self._parent(names[:-1], member.name)
            if not stat.S_ISREG(os.stat(names[-1], dir_fd=fd, follow_symlinks=False).st_mode):
                raise refuse(member.name, "is a link to what is not a file of the archive")
            _clear(place, name)
            os.link(names[-1], name, src_dir_fd=fd, dst_dir_fd=place, follow_symlinks=False)
        finally:
            os.close(place)


def _names(path: str) -> tuple[str, ...]:
    names = tuple(name for name in path.split("/") if name not in {"", "."})
    if path.startswith("/"):
        raise refuse(path, "has an absolute path")
    if ".." in names or "\0" in path:
        raise refuse(path, "leads outside")
    return names


def _check_link(names: tuple[str, ...], member: Member) -> None:
    """Accept only links that go up, not beyond the root, and then down: even chained, these never lead outside."""
    steps = [step for step in member.linkname.split("/") if step not in {"", "."}]
    up = 0
    while up < len(steps) and steps[up] == "..":
        up += 1
    if member.linkname.startswith("/") or ".." in steps[up:] or up > len(names) - 1:
        raise refuse(member.name, f"is a link that leads outside, to {member.linkname!r}")


def _open_directory(fd: int, name: str, path: str) -> int:
    try:
        return os.open(name, OPENED_DIRECTORY, dir_fd=fd)
    except NotADirectoryError:
        raise refuse(path, "goes through what is not a directory") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise refuse(path, "goes through a link") from None
        raise


def _write(parent: int, name: str, archive: tarfile.TarFile, member: Member, mask: int) -> None:
    try:
        file = os.open(name, _NEW, 0o600, dir_fd=parent)
    except FileExistsError:
        _clear(parent, name)
        file = os.open(name, _NEW, 0o600, dir_fd=parent)
    try:
        for piece in _pieces(archive, member):
            view = memoryview(piece)
            while view:
                view = view[os.write(file, view) :]
        os.fchmod(file, member.mode & mask)
        os.utime(file, ns=member.times)
    finally:
        os.close(file)


def _pieces(archive: tarfile.TarFile, member: Member) -> Iterator[bytes]:
    if member.issparse():
        source = cast("IO[bytes]", archive.extractfile(member))
        while piece := source.read(PIECE):
            yield piece
        return
    left = member.size
    source = cast("IO[bytes]", archive.fileobj)
    while left:
        piece = source.read(min(PIECE, left))
        if not piece:
            raise tarfile.ReadError("unexpected end of data")
        left -= len(piece)
        yield piece
    source.read(-member.size % BLOCK)


def _clear(parent: int, name: str) -> None:
    """Remove an earlier member of the same name."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def unpack(
    source: IO[bytes],
    root: int,
    *,
    any_links: bool = False,
    set_ids: bool | None = None,
    exclude: Exclusion | None = None,
) -> None:
    """Unpack a tar stream into an empty directory, and read the stream to its end.

    With `any_links` symbolic links may point anywhere; none is ever followed. With `set_ids` set-id bits are kept, by
    default where links may point anywhere. What `exclude` matches is left out.

    Raises:
        OSError: EBADMSG for what is not a tar stream or has members that lead outside, else the system's error.
    """
    unpacker = TarUnpacker(root, any_links, any_links if set_ids is None else set_ids)

    def take(archive: tarfile.TarFile, member: Member) -> None:
        if exclude is None or not exclude.leave_out("/".join(_names(member.name)), is_directory=member.isdir()):
            unpacker.take(archive, member)

    with closing(unpacker):
        _take_each(source, take)
        unpacker.finish()


def unpack_several(source: IO[bytes], roots: Mapping[str, int]) -> None:
    """Unpack a stream of `pack_several` into empty directories, and read it to its end; links may point anywhere.

    Raises:
        OSError: EBADMSG for what is not such a stream, else the system's error.
    """
    unpackers: dict[str, TarUnpacker] = {}

    def take(archive: tarfile.TarFile, member: Member) -> None:
        root, _, rest = member.name.partition("/")
        if root not in unpackers:
            raise refuse(member.name, "is below none of its directories")
        member.name = rest
        unpackers[root].take(archive, member)

    with ExitStack() as stack:
        for name, fd in roots.items():
            unpackers[name] = stack.enter_context(closing(TarUnpacker(fd, any_links=True, set_ids=True)))
        _take_each(source, take)
        for unpacker in unpackers.values():
            unpacker.finish()


def _take_each(source: IO[bytes], take: Callable[[tarfile.TarFile, Member], None]) -> None:
    try:
        stream = cast("IO[bytes]", ForwardStream(source))
        with tarfile.TarFile(fileobj=stream, tarinfo=Member, encoding="utf-8", errors="surrogateescape") as archive:
            while member := archive.next():
                take(archive, cast("Member", member))
                # It would keep every member, and a stream may have millions.
                archive.members = []  # type: ignore[attr-defined]  # missing from typeshed
    except (tarfile.TarError, ValueError, OverflowError) as error:
        # pax headers that are not numbers, and names with a NUL, raise ValueError.
        raise OSError(errno.EBADMSG, f"it is not a complete tar stream: {error}; nothing of it is kept") from None
    while source.read(PIECE):
        pass
