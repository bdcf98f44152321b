"""The files of a build: its directory, and others by name; what a step takes of them is a tar with a digest."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandmesh.errors import InvalidArgument
from sandmesh.shared.files.dockerignore import DockerIgnore
from sandmeshd.agent.boot.build_step.sources import NAME, SourceMissing, found_sources, source_pieces


@dataclass(frozen=True)
class ContextFiles:
    """The tar of what a step takes; its digest does not depend on owners and times."""

    path: Path
    digest: str
    count: int
    """How many sources there are."""


@dataclass(frozen=True)
class Context:
    """A directory that a build reads."""

    directory: Path
    ignore: DockerIgnore = field(default_factory=DockerIgnore)

    def spool(self, patterns: Sequence[str], target: Path) -> ContextFiles:
        """Write the tar of what patterns match.

        Raises:
            InvalidArgument: One matches nothing, or leads out of the directory.
            OSError: A file cannot be read, or the disk is full.
        """
        root = str(self.directory)
        try:
            paths = found_sources(root, patterns, self.ignore)
            return ContextFiles(target, _write(target, source_pieces(root, paths, self.ignore)), len(paths))
        except SourceMissing as missing:
            raise InvalidArgument(str(missing)) from None


def spool_texts(texts: Mapping[str, str], target: Path) -> ContextFiles:
    """Write the tar of files with these texts, by name."""

    def pieces() -> Iterator[bytes]:
        for number, (name, text) in enumerate(texts.items()):
            data = text.encode()
            member = tarfile.TarInfo(str(number))
            member.size, member.mode, member.pax_headers = len(data), 0o644, {NAME: name}
            yield member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            yield data + bytes(-len(data) % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)

    return ContextFiles(target, _write(target, pieces()), len(texts))


def _write(target: Path, pieces: Iterator[bytes]) -> str:
    with target.open("wb") as file:
        file.writelines(pieces)
    digest = hashlib.sha256()
    with tarfile.open(target, errors="surrogateescape") as tar:
        for member in tar:
            kind = (member.name, member.type, member.mode, member.linkname, member.size)
            kept = {name: value for name, value in member.pax_headers.items() if name.isupper() or "." in name}
            digest.update(repr((kind, sorted(kept.items()))).encode("utf-8", "surrogateescape"))
            content = tar.extractfile(member) if member.isreg() else None
            while content is not None and (data := content.read(1 << 20)):
                digest.update(data)
    return digest.hexdigest()
