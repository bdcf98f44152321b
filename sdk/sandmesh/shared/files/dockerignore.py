"""What a `.dockerignore` leaves out of a build: see https://docs.docker.com/build/concepts/context/#dockerignore-files."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument

_LARGEST: Final = 1 << 20


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    leaves_out: bool


class DockerIgnore:
    """Patterns in order, of which the last that matches a path or a directory above it decides."""

    def __init__(self, text: str = "") -> None:
        """Read patterns, one per line.

        Raises:
            InvalidArgument: A pattern cannot be read.
        """
        lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines() if not line.startswith("#"))
        self._rules = [_read(line) for line in lines if line and line != "!"]
        self.has_exceptions = any(not rule.leaves_out for rule in self._rules)
        """Whether something below a directory that is left out may be taken."""

    def leaves_out(self, path: str) -> bool:
        """Return whether a path, relative to the build's directory, is left out."""
        places = [path]
        while parent := posixpath.dirname(places[-1]):
            places.append(parent)
        found = False
        for rule in self._rules:
            if rule.leaves_out != found and any(map(rule.pattern.fullmatch, places)):
                found = rule.leaves_out
        return found


def _read(line: str) -> _Rule:
    leaves_out = not line.startswith("!")
    text = posixpath.normpath((line if leaves_out else line[1:]).strip()).lstrip("/")
    try:
        return _Rule(re.compile(_regular(text), re.DOTALL), leaves_out)
    except re.error as error:
        raise InvalidArgument(f"the pattern {line!r} of .dockerignore cannot be read: {error}") from None


def _regular(text: str) -> str:
    """Return a pattern as a regular expression: `**` is any number of directories."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        if text.startswith("**", position):
            position += 2
            if text.startswith("/", position):
                position += 1
                parts.append("(?:.*/)?")
            else:
                parts.append(".*")
            continue
        letter = text[position]
        end = text.find("]", position + 2) if letter == "[" else -1
        if end > 0:
            inside = text[position + 1 : end].replace("\\", "\\\\")
            parts.append(f"[{inside}]")
            position = end
        elif letter == "\\" and position + 1 < len(text):
            position += 1
            parts.append(re.escape(text[position]))
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)))
        position += 1
    return "".join(parts)


def read_ignore(directory: Path, dockerfile: Path | None) -> DockerIgnore:
    """Return what a build leaves out: the file beside the Dockerfile decides, else that of the directory.

    Raises:
        InvalidArgument: It cannot be read.
    """
    beside = [] if dockerfile is None else [dockerfile.with_name(f"{dockerfile.name}.dockerignore")]
    for path in (*beside, directory / ".dockerignore"):
        if path.is_file():
            if path.stat().st_size > _LARGEST:
                raise InvalidArgument(f"{path} is larger than {_LARGEST} bytes")
            return DockerIgnore(path.read_text(errors="replace"))
    return DockerIgnore()
