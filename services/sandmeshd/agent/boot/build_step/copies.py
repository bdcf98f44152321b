"""Files that come as a tar (see `sources`), put at their place in the image as COPY and ADD have it.

It runs as root of the image, whose own links decide where a path leads.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, Final

from sandmeshd.agent.boot.build_step.sources import NAME
from sandmeshd.agent.files.trees.tree_entries import ATTRIBUTE
from sandmeshd.agent.userland.core.account import find_account

_PIECE: Final = 1 << 18


class CopyRefused(Exception):
    """Files cannot be copied as the step says; the text says why."""


@dataclass
class CopyInstruction:
    """One COPY or ADD."""

    target: str
    """Absolute; with a slash at its end it is a directory."""
    several: bool
    """Whether there are several sources, so that the target is a directory."""
    owner: tuple[int, int] | None
    """The uid and gid of all files; None: those that they have."""
    mode: int | None
    """Of all files and directories; None: those that they have."""
    archives: bool
    """Whether a source that is an archive is unpacked."""
    _tops: dict[str, str] = field(default_factory=dict[str, str])
    """Where each source goes; an archive's is empty."""

    def apply(self, stream: IO[bytes]) -> None:
        """Put everything at its place.

        Raises:
            CopyRefused: A file is in the way of a directory, or the other way round.
            OSError: The disk is full.
        """
        with tarfile.open(fileobj=stream, mode="r|", errors="surrogateescape") as tar:
            for member in tar:
                number, _, inside = member.name.partition("/")
                if not inside:
                    self._tops[number] = self._begin(member, tar)
                top = self._tops[number]
                if top:
                    self._put(posixpath.join(top, inside) if inside else top, member, tar)

    def _begin(self, member: tarfile.TarInfo, tar: tarfile.TarFile) -> str:
        """Return where a source goes, whose directories are made; unpack an archive instead."""
        if member.isreg() and self.archives and self._unpack(member, tar):
            return ""
        is_directory = os.path.isdir(self.target)
        if member.isdir():
            self._make_directories(self.target.rstrip("/") or "/")
            return self.target.rstrip("/") or "/"
        into = self.target.endswith("/") or self.several or is_directory
        place = posixpath.join(self.target, member.pax_headers[NAME]) if into else self.target
        self._make_directories(posixpath.dirname(place))
        return place

    def _unpack(self, member: tarfile.TarInfo, tar: tarfile.TarFile) -> bool:
        """Unpack a source that is an archive; return whether it is one."""
        content = tar.extractfile(member)
        # A file is needed to find out what it is, and then to read it again from its beginning.
        with open("/dev/shm/archive", "w+b") as file:  # noqa: S108 - the step's own
            os.unlink(file.name)
            if content is not None:
                shutil.copyfileobj(content, file, _PIECE)
            file.seek(0)
            try:
                archive = tarfile.open(fileobj=file, errors="surrogateescape")  # noqa: SIM115 - closed below
            except tarfile.TarError:
                file.seek(0)
                member.pax_headers = {**member.pax_headers}
                self._write_plain(member, file)
                return True
            with archive:
                self._make_directories(self.target.rstrip("/") or "/")
                for inner in archive:
                    self._put(_inside(self.target, inner.name), inner, archive)
        return True

    def _write_plain(self, member: tarfile.TarInfo, content: IO[bytes]) -> None:
        self.archives = False
        try:
            place = self._begin(member, None)  # type: ignore[arg-type]  # not read where no archive is unpacked
        finally:
            self.archives = True
        self._clear(place)
        _write(place, content)
        self._finish(place, member)

    def _make_directories(self, path: str) -> None:
        missing: list[str] = []
        while path not in {"", "/"} and not os.path.isdir(path):
            missing.append(path)
            path = posixpath.dirname(path)
        for each in reversed(missing):
            try:
                os.mkdir(each, 0o755)
            except OSError as error:
                raise CopyRefused(f"{each} cannot be a directory: {error.strerror}") from None
            if self.owner is not None:
                os.chown(each, *self.owner)

    def _put(self, path: str, member: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
        if member.isdir() and os.path.isdir(path):
            return
        if member.isdir() and os.path.lexists(path):
            raise CopyRefused(f"{path} is a file, and a directory is to be copied there")
        self._clear(path)
        self._make_directories(posixpath.dirname(path))
        if member.islnk():
            os.link(_inside(self.target, member.linkname), path, follow_symlinks=False)
        elif _make(path, member, tar):
            self._finish(path, member)

    @staticmethod
    def _clear(path: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                raise CopyRefused(f"{path} is a directory, and a file is to be copied there")
            os.unlink(path)

    def _finish(self, path: str, member: tarfile.TarInfo) -> None:
        owner = self.owner or (_valid(member.uid), _valid(member.gid))
        os.chown(path, *owner, follow_symlinks=False)
        if not member.issym():
            os.chmod(path, member.mode if self.mode is None else self.mode)
        for name, value in member.pax_headers.items():
            if name.startswith(ATTRIBUTE):
                with suppress(OSError):
                    os.setxattr(path, name.removeprefix(ATTRIBUTE), value.encode("utf-8", "surrogateescape"))
        os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)


def _make(path: str, member: tarfile.TarInfo, tar: tarfile.TarFile) -> bool:
    """Make what a member stands for; return whether images have such a thing, which devices are not."""
    content = tar.extractfile(member) if member.isreg() else None
    if member.isdir():
        os.mkdir(path, 0o755)
    elif member.issym():
        os.symlink(member.linkname, path)
    elif member.isfifo():
        os.mkfifo(path)
    elif content is not None:
        _write(path, content)
    else:
        return False
    return True


def _write(path: str, content: IO[bytes]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise CopyRefused(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(content, file, _PIECE)


def _inside(target: str, name: str) -> str:
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise CopyRefused(f"{name[:200]!r} of the archive leads out of it")
    return posixpath.join(target, *parts)


def _valid(number: int) -> int:
    return number if 0 <= number <= 65_535 else 65_534


def owner_of(text: str) -> tuple[int, int] | None:
    """Return what `--chown` names: `user`, `uid`, or either with `:group`; None where it names nothing.

    Raises:
        ValueError: The image has no user or group of that name.
    """
    if not text:
        return None
    account = find_account(text, None)
    name, colon, _ = text.partition(":")
    # A number without a group is both, as in Docker.
    return (account.uid, account.uid) if name.isdecimal() and not colon else (account.uid, account.gid)


def copy_of(values: Mapping[str, Any]) -> CopyInstruction:
    """Return what a step says of a copy."""
    owner = owner_of(values["owner"])
    return CopyInstruction(
        target=values["target"],
        several=values["several"],
        owner=owner if owner is not None or values["keeps_owners"] else (0, 0),
        mode=values["mode"],
        archives=values["archives"],
    )
