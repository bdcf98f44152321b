"""Files of builds that clients upload: tars by owner and digest, bounded, kept for an hour."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument, RuntimeUnavailable, TooLarge, WrongState
from sandmesh.shared.files.tar import unpack
from sandmeshd.images.reference import DIGEST
from sandmeshd.runtime.full_disk import full_disk_explained

_KEPT_SECONDS: Final = 3600.0
_MOST_DATA: Final = 2 << 20
_OWNERS: Final = 4
"""How many of the largest contexts all uploads together may have."""


@dataclass(frozen=True)
class UploadedPart:
    """A part of a tar."""

    digest: str
    size: int
    offset: int
    data: bytes


class ContextUploads:
    """The uploads below a directory."""

    def __init__(self, directory: Path, most: int) -> None:
        """Keep uploads of at most `most` bytes each."""
        self._directory = directory
        self._most = most

    def add(self, owner: str, part: UploadedPart) -> tuple[int, bool]:
        """Add a part; return how many bytes are there, and whether those are all.

        Raises:
            InvalidArgument: It does not fit, or the whole has another digest.
            TooLarge: The whole is larger than may be.
            RuntimeUnavailable: The disk is full, or others' uploads leave no room.
        """
        self._check(part)
        whole = self._path(owner, part.digest)
        if whole.exists():
            os.utime(whole)
            return whole.stat().st_size, True
        with full_disk_explained(self._directory):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._forget_old()
            partial = whole.with_suffix(".part")
            received = _append(partial, part)
            if received < part.size:
                self._check_room(part.size - received)
                return received, False
            _verify(partial, part.digest)
            partial.rename(whole)
            return received, True

    def unpack(self, owner: str, digest: str, target: Path) -> None:
        """Unpack what was uploaded into an empty directory.

        Raises:
            WrongState: It was not, or more than an hour ago.
            InvalidArgument: It is not a tar of files, directories and links.
        """
        try:
            file = self._path(owner, digest).open("rb")
        except FileNotFoundError:
            raise WrongState("the files of the build were not uploaded: upload them", {"state": "MISSING"}) from None
        root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with file:
                unpack(file, root, any_links=True, set_ids=False)
        except OSError as error:
            if error.errno == errno.EBADMSG:
                raise InvalidArgument(f"the files of the build are not a tar that is taken: {error}") from None
            raise
        finally:
            os.close(root)

    def _check(self, part: UploadedPart) -> None:
        if not DIGEST.fullmatch(part.digest):
            raise InvalidArgument("digest is sha256: and 64 hexadecimal digits", {"field": "digest"})
        if part.size > self._most:
            fix = "leave files out by a .dockerignore, or have an administrator set SANDMESH_IMAGE_CONTEXT_BYTES"
            message = f"the files of the build have {part.size} bytes, and at most {self._most} are taken: {fix}"
            raise TooLarge(message, {"fix": fix})
        ends = part.offset + len(part.data)
        if part.size <= 0 or part.offset < 0 or ends > part.size or len(part.data) > _MOST_DATA:
            raise InvalidArgument("offset and data are a part of the tar, of at most 2 MiB", {"field": "offset"})

    def _check_room(self, wanted: int) -> None:
        used = sum(path.stat().st_size for path in self._directory.iterdir())
        if used + wanted > _OWNERS * self._most:
            fix = "try again later: uploads are kept for an hour"
            raise RuntimeUnavailable(f"others' files of builds leave no room for {wanted} bytes: {fix}", {"fix": fix})

    def _forget_old(self) -> None:
        oldest = time.time() - _KEPT_SECONDS
        for path in self._directory.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def _path(self, owner: str, digest: str) -> Path:
        return self._directory / hashlib.sha256(f"{owner}\0{digest}".encode()).hexdigest()


def _append(path: Path, part: UploadedPart) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        received = os.fstat(descriptor).st_size
        if part.offset > received:
            raise InvalidArgument(f"offset is at most {received}, where what is there ends", {"field": "offset"})
        if part.data and part.offset + len(part.data) > received:
            os.pwrite(descriptor, part.data, part.offset)
            received = part.offset + len(part.data)
        return received
    finally:
        os.close(descriptor)


def _verify(path: Path, digest: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if f"sha256:{found}" != digest:
        path.unlink()
        raise InvalidArgument(f"the tar has the digest sha256:{found}, not {digest}", {"field": "digest"})
