"""The files of a build: directories and files of this machine as one tar, whose bytes depend on nothing else."""

from __future__ import annotations

import hashlib
import posixpath
import stat
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, cast

from sandmesh.errors import InvalidArgument, TooLarge
from sandmesh.shared.files.dockerignore import DockerIgnore

PIECE: Final = 1 << 20
MOST_FILES: Final = 200_000


@dataclass(frozen=True)
class ContextSource:
    """A file or directory of this machine, and where it is among the files of a build."""

    path: Path
    place: str
    ignore: DockerIgnore = field(default_factory=DockerIgnore)


@dataclass(frozen=True)
class ContextTar:
    """The tar that was written."""

    digest: str
    """`sha256:` and its digest."""
    size: int


class _Hashed:
    """A file that hashes and counts what is written to it."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file = file
        self._most = most
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.size += len(data)
        if self.size > self._most:
            fix = "leave files out by a .dockerignore or ignore=[...]"
            raise TooLarge(f"the files of the build have more than {self._most} bytes: {fix}", {"fix": fix})
        self._digest.update(data)
        return self._file.write(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"


def write_context(sources: Sequence[ContextSource], file: IO[bytes], most: int) -> ContextTar:
    """Write the tar of sources; owners and times are left out, and sockets, devices and FIFOs.

    Raises:
        InvalidArgument: A source is not there or cannot be read, or there are more than MOST_FILES.
        TooLarge: It would have more than `most` bytes.
    """
    hashed = _Hashed(file, most)
    count = 0
    # A stream writes only, which the types of tarfile do not know.
    with tarfile.open(fileobj=cast("IO[bytes]", hashed), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for source in sources:
            try:
                for path, name in _members(source):
                    count += 1
                    if count > MOST_FILES:
                        raise InvalidArgument(f"the build has more than {MOST_FILES} files: leave some out")
                    _add(tar, path, name)
            except OSError as error:
                raise InvalidArgument(f"{error.filename or source.path} cannot be read: {error.strerror}") from None
    return ContextTar(hashed.digest, hashed.size)


def _members(source: ContextSource) -> Iterator[tuple[Path, str]]:
    """Yield files with their names in the tar, each directory before what is in it."""
    parents = source.place.split("/")[:-1]
    for number in range(len(parents)):
        yield source.path if source.path.is_dir() else source.path.parent, "/".join(parents[: number + 1])
    real = source.path.resolve(strict=True)
    if source.place:
        yield real, source.place
    pending = [(real, "")] if real.is_dir() else []
    while pending:
        folder, inside = pending.pop()
        for path in sorted(folder.iterdir()):
            relative = posixpath.join(inside, path.name)
            out = source.ignore.leaves_out(relative)
            if path.is_dir() and not path.is_symlink() and not (out and not source.ignore.has_exceptions):
                pending.append((path, relative))
                # Something below may be taken, and needs its directory.
                out = out and not source.ignore.has_exceptions
            if not out:
                yield path, posixpath.join(source.place, relative)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    found = path.lstat()
    member = tarfile.TarInfo(name)
    member.mode = stat.S_IMODE(found.st_mode) & 0o777
    if stat.S_ISDIR(found.st_mode):
        member.type, member.mode = tarfile.DIRTYPE, member.mode | 0o700
        tar.addfile(member)
    elif stat.S_ISLNK(found.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        tar.addfile(member)
    elif stat.S_ISREG(found.st_mode):
        member.size = found.st_size
        with path.open("rb") as content:
            tar.addfile(member, content)
