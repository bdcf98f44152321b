"""Files that a step copies, as a tar: member N is the Nth source, with its name, and `N/...` what is in it.

It reads the build's own directory on the host, and another image's root inside of a step.
"""

from __future__ import annotations

import glob
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from sandmeshd.agent.files.trees.tree_entries import content_of, member_of

NAME: Final = "SANDMESH.name"
"""The header of a source's first member that has its file name."""
_SIGNS: Final = frozenset("*?[")


class SourceMissing(Exception):
    """What is to be copied is not there, or outside of the directory; the text says which and why."""


class Ignore(Protocol):
    """Which paths, relative to the directory, are left out."""

    has_exceptions: bool
    """Whether something below a directory that is left out may be taken."""

    def leaves_out(self, path: str) -> bool:
        """Return whether a path is left out."""
        ...


class Everything:
    """Leaves nothing out."""

    has_exceptions = False

    def leaves_out(self, path: str) -> bool:
        """Return that it is not."""
        del path
        return False


def found_sources(root: str, patterns: Sequence[str], ignore: Ignore) -> list[str]:
    """Return the paths that patterns match, relative to a directory, without what is ignored.

    Raises:
        SourceMissing: A pattern matches nothing, or what is outside of the directory.
    """
    found: list[str] = []
    for pattern in patterns:
        relative = os.path.normpath(pattern.lstrip("/") or ".")
        if relative.startswith(".."):
            raise SourceMissing(f"{pattern} is outside of the build's directory")
        matches = _matches(root, relative)
        kept = [path for path in matches if path == "." or not ignore.leaves_out(path)]
        if not kept:
            why = "left out by .dockerignore" if matches else "not there"
            raise SourceMissing(f"{pattern} is {why}")
        found += kept
    return found


def _matches(root: str, relative: str) -> list[str]:
    if _SIGNS.isdisjoint(relative):
        return [relative] if os.path.lexists(f"{root}/{relative}") else []
    return sorted(glob.glob(relative, root_dir=root, include_hidden=True))


def source_pieces(root: str, paths: Sequence[str], ignore: Ignore) -> Iterator[bytes]:
    """Yield the tar of some paths; a source that is a symbolic link is what it leads to.

    Raises:
        SourceMissing: It leads out of the directory.
        OSError: A file cannot be read.
    """
    whole = os.path.realpath(root)
    for number, path in enumerate(paths):
        real = os.path.realpath(f"{root}/{path}")
        if real != whole and not real.startswith(f"{whole.rstrip('/')}/"):
            raise SourceMissing(f"{path} leads out of the build's directory")
        if not os.path.exists(real):
            raise SourceMissing(f"{path} is a link that leads nowhere")
        yield from _source(str(number), Path(real), os.path.basename(path), Path(root, path), (root, ignore))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _source(number: str, real: Path, name: str, shown: Path, where: tuple[str, Ignore]) -> Iterator[bytes]:
    for path in _kept(real, shown, *where) if real.is_dir() else [real]:
        inside = path.relative_to(real)
        member = member_of(path, f"{number}/{inside}".removesuffix("/."), path.lstat())
        if member is None or member.ischr():
            continue
        if path == real:
            member.pax_headers = {**member.pax_headers, NAME: name}
        yield member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if member.isreg():
            yield from content_of(path, member.size)


def _kept(real: Path, shown: Path, root: str, ignore: Ignore) -> Iterator[Path]:
    """Yield a directory and what of it is not left out, each before what is in it."""
    yield real
    pending = [real]
    while pending:
        folder = pending.pop()
        for name in sorted(os.listdir(folder)):
            path = folder / name
            out = ignore.leaves_out(os.path.relpath(shown / path.relative_to(real), root))
            if path.is_dir() and not path.is_symlink() and not (out and not ignore.has_exceptions):
                pending.append(path)
            if not out:
                yield path
