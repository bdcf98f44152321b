"""Makes the files of a layer in the working directory, as overlayfs takes them with `userxattr`."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import json
import lzma
import os
import sys
from dataclasses import dataclass, field
from typing import IO, Any, Final, cast

from sandmeshd.images.layers.tar_entries import ImageRefused, TarEntry, TarKind, read_entries

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdFile
else:
    from backports.zstd import ZstdFile

_CHUNK: Final = 1 << 20
_REPORT_EVERY: Final = 16 << 20
_WHITEOUT: Final = b".wh."
_OPAQUE: Final = b".wh..wh..opq"
_OPAQUE_ATTRIBUTE: Final = b"user.overlay.opaque"
_LARGEST_ID: Final = 65535
_NOBODY: Final = 65534
_LATEST: Final = 1 << 33
_MAGIC: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


@dataclass
class Bounds:
    """How much a layer may still have: `bytes` of content or of tar, and `files` of any kind."""

    bytes: int
    files: int

    def take(self, size: int = 0, files: int = 0) -> None:
        """Count something that a layer has.

        Raises:
            ImageRefused: It is more than is left.
        """
        self.bytes -= size
        self.files -= files
        if self.bytes < 0:
            raise ImageRefused("large", "its content is larger than the limit (SANDMESH_IMAGE_BYTES)")
        if self.files < 0:
            raise ImageRefused("large", "it has more files than the limit (SANDMESH_IMAGE_FILES)")


@dataclass
class TarStream:
    """A tar as it is decompressed: counted, and hashed."""

    source: IO[bytes]
    bounds: Bounds
    count: int = 0
    reported: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def read(self, size: int, /) -> bytes:
        """Return that many bytes, fewer only at the end."""
        data = self.source.read(size)
        self.digest.update(data)
        self.count += len(data)
        self.bounds.take(size=len(data))
        if self.count - self.reported >= _REPORT_EVERY:
            self.reported = self.count
            report(read=self.count)
        return data

    def drain(self) -> None:
        """Read what is behind the tar's end."""
        while self.read(_CHUNK):
            pass


def decompressed(file: IO[bytes]) -> IO[bytes]:
    """Return a file's content without its compression, which its first bytes tell."""
    start = file.read(6)
    file.seek(0)
    kind = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "")
    opened: Any = file
    match kind:
        case "gzip":
            opened = gzip.GzipFile(fileobj=file)
        case "zstd":
            opened = ZstdFile(file)
        case "bzip2":
            opened = bz2.BZ2File(file)
        case "xz":
            opened = lzma.LZMAFile(file)  # noqa: SIM115 - the caller closes its file
        case _:
            pass
    return cast("IO[bytes]", opened)


class Unpacker:
    """Makes the files of a layer in the working directory, which is the root."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._directories: dict[bytes, int] = {b".": 0}
        """Those that are there, with the times to set at the end; 0 for those that the layer does not state."""
        self.size = 0
        self.files = 0
        self.left_out: dict[str, int] = {}
        self.implied: set[bytes] = set()
        """Directories without an entry, which are there for what is in them."""

    def unpack(self, stream: TarStream) -> None:
        """Make every file of a tar.

        Raises:
            ImageRefused: An entry breaks a rule.
        """
        for entry in read_entries(stream):
            self._bounds.take(files=1)
            self._make(entry, stream)
        for path, nanoseconds in sorted(self._directories.items(), reverse=True):
            if nanoseconds:
                os.utime(path, ns=(nanoseconds, nanoseconds))

    def _make(self, entry: TarEntry, stream: TarStream) -> None:
        path = checked_name(entry.name)
        parent, _, name = path.rpartition(b"/")
        self._make_parents(parent)
        if name.startswith(_WHITEOUT):
            self._white_out(parent or b".", name, entry)
        elif entry.kind is TarKind.DEVICE:
            self._leave_out("device nodes")
        elif entry.kind is TarKind.DIRECTORY:
            self._make_directory(path, entry)
        else:
            self._make_file(path, entry, stream)

    def _make_parents(self, path: bytes) -> None:
        missing: list[bytes] = []
        while path and path not in self._directories:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for parent in reversed(missing):
            if parent.rpartition(b"/")[2].startswith(_WHITEOUT):
                raise ImageRefused("bad", f"an entry is below a whiteout: {show(parent)}")
            if not os.path.isdir(parent):  # noqa: PTH112 - bytes, a hundred thousand times
                self._bounds.take(files=1)
                opaque = self._clear(parent)
                os.mkdir(parent, 0o755)  # noqa: PTH102
                self._set_opaque(parent, opaque)
                self.implied.add(parent)
            self._directories[parent] = 0

    def _make_directory(self, path: bytes, entry: TarEntry) -> None:
        if not path:
            path = b"."
        elif os.path.islink(path) or not os.path.isdir(path):  # noqa: PTH112, PTH114
            opaque = self._clear(path)
            os.mkdir(path)  # noqa: PTH102
            self._set_opaque(path, opaque)
        self.implied.discard(path)
        self._set_owner(path, entry)
        os.chmod(path, entry.mode)  # noqa: PTH101
        self._set_attributes(path, entry)
        self._directories[path] = nanoseconds(entry) or 1

    def _make_file(self, path: bytes, entry: TarEntry, stream: TarStream) -> None:
        if not path:
            raise ImageRefused("bad", "its root is not a directory")
        self.files += 1
        if entry.kind is TarKind.FILE:
            self._write(path, entry, stream)
            return
        self._clear(path)
        if entry.kind is TarKind.HARD_LINK:
            self._link(path, entry)
            return
        if entry.kind is TarKind.SYMLINK:
            os.symlink(entry.target, path)  # noqa: PTH211
        else:
            os.mkfifo(path, entry.mode)
        self._set_owner(path, entry)
        at = nanoseconds(entry)
        os.utime(path, ns=(at, at), follow_symlinks=False)

    def _write(self, path: bytes, entry: TarEntry, stream: TarStream) -> None:
        """Write a file with as few system calls as it takes: images have a hundred thousand of them."""
        self.size += entry.size
        descriptor = self._open_new(path, entry.mode & 0o777)
        try:
            self._write_content(descriptor, entry, stream)
            if entry.uid or entry.gid:
                self._set_owner(descriptor, entry)
            if entry.mode & 0o7000:
                os.fchmod(descriptor, entry.mode)
            self._set_attributes(descriptor, entry)
            at = nanoseconds(entry)
            os.utime(descriptor, ns=(at, at))
        finally:
            os.close(descriptor)

    def _open_new(self, path: bytes, mode: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            return os.open(path, flags, mode)
        except FileExistsError:
            self._clear(path)
            return os.open(path, flags, mode)

    def _write_content(self, descriptor: int, entry: TarEntry, stream: TarStream) -> None:
        left, hole = entry.size, False
        while left:
            data = stream.read(min(left, _CHUNK))
            if not data:
                raise ImageRefused("bad", f"it ends within {show(entry.name)}")
            left -= len(data)
            hole = not data[0] and data.count(0) == len(data)
            if hole:
                os.lseek(descriptor, len(data), os.SEEK_CUR)
                continue
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        if hole:
            os.ftruncate(descriptor, entry.size)

    def _link(self, path: bytes, entry: TarEntry) -> None:
        target = checked_name(entry.target)
        try:
            os.link(target, path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            message = f"{show(path)} is a hard link to {show(target)}, which is not in the same layer"
            raise ImageRefused("bad", message) from None
        except PermissionError:
            raise ImageRefused("bad", f"{show(path)} is a hard link to a directory: {show(target)}") from None

    def _clear(self, path: bytes) -> bool:
        """Remove what an earlier entry made at a path; return whether it hid what lower layers have there."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            raise ImageRefused("bad", f"{show(path)} is a directory, and later something else")
        os.unlink(path)  # noqa: PTH108
        return status.st_rdev == 0 and (status.st_mode & 0o170000) == 0o020000

    def _white_out(self, parent: bytes, name: bytes, entry: TarEntry) -> None:
        if name == _OPAQUE:
            self._set_opaque(parent, opaque=True)
            return
        hidden = name.removeprefix(_WHITEOUT)
        if hidden.startswith(_WHITEOUT):
            self._leave_out("notes of AUFS")
            return
        if hidden in {b"", b".", b".."} or entry.kind not in {TarKind.FILE, TarKind.HARD_LINK} or entry.size:
            raise ImageRefused("bad", f"{show(name)} is not a whiteout")
        path = hidden if parent == b"." else parent + b"/" + hidden
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            self._set_opaque(path, opaque=True)
        elif not os.path.lexists(path):
            os.mknod(path, 0o020000, 0)

    def _set_opaque(self, path: bytes, opaque: bool) -> None:
        if opaque:
            os.setxattr(path, _OPAQUE_ATTRIBUTE, b"y")

    def _set_owner(self, path: bytes | int, entry: TarEntry) -> None:
        ids = [number if 0 <= number <= _LARGEST_ID else _NOBODY for number in (entry.uid, entry.gid)]
        if ids != [entry.uid, entry.gid]:
            self._leave_out("owners above 65535")
        if isinstance(path, int):
            os.fchown(path, *ids)
        else:
            os.chown(path, *ids, follow_symlinks=False)

    def _set_attributes(self, path: bytes | int, entry: TarEntry) -> None:
        for name, value in entry.attributes.items():
            # The first are overlayfs' own, by which a layer would reach into others.
            if name.startswith(b"user.overlay.") or not (name.startswith(b"user.") or name == b"security.capability"):
                self._leave_out(f"attributes {show(name.partition(b'.')[0])}.*")
                continue
            try:
                os.setxattr(path, name, value)
            except OSError as error:
                if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                    raise
                self._leave_out(f"attributes that this file system does not take ({show(name)})")

    def _leave_out(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1


def checked_name(name: bytes) -> bytes:
    """Return a name relative to the root, without dots.

    Raises:
        ImageRefused: It leads upwards, or has a null byte.
    """
    parts = [part for part in name.split(b"/") if part not in {b"", b"."}]
    if b".." in parts or b"\0" in name:
        raise ImageRefused("bad", f"a name leads out of the layer: {show(name)}")
    return b"/".join(parts)


def show(name: bytes) -> str:
    """Return a name as a person can read it."""
    return ascii(name[:200].decode(errors="replace"))


def nanoseconds(entry: TarEntry) -> int:
    """Return an entry's time of change, within what file systems take."""
    return int(min(max(entry.mtime, 0.0), _LATEST) * 1_000_000_000)


def report(**facts: object) -> None:
    """Write a line for the parent."""
    os.write(1, json.dumps(facts).encode() + b"\n")
